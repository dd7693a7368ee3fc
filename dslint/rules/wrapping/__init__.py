"""What rules ask about models and their wrappers: which there are, what runs past them, which parts take no part."""
