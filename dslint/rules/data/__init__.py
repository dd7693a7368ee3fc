"""What rules ask about data: loaders, samplers, orders, shares and how many items each rank gets."""
