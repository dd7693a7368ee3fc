"""A Llama of a few thousand random weights: the real class of transformers, nothing downloaded."""

from __future__ import annotations

from typing import Any


def llama_config() -> Any:
    """Two layers, 16 wide, 32 tokens."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip


def llama() -> Any:
    """The model, with the weights that the seed of the process gives."""
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(llama_config())
