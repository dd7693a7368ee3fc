"""What rules ask about ZeRO and DeepSpeed engines: stages, configs, and parameters that are spread over the ranks."""
