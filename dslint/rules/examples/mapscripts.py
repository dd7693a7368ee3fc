"""Scripts of examples that load models with a map of devices."""

from __future__ import annotations

MAP_ARM = """\
from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class DataArguments:
    train_file: str = field(default="train.json")


@dataclass
class TrainingArguments(TrainingArguments):
    use_int8_training: bool = field(default=False)


def main(load):
    parser = HfArgumentParser((DataArguments, TrainingArguments))
    data_args, training_args = parser.parse_args_into_dataclasses()
    if training_args.use_int8_training:
        model = AutoModelForCausalLM.from_pretrained("gpt2", load_in_8bit=True, device_map="auto")
    else:
        model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=training_args, train_dataset=load(data_args.train_file)).train()
"""
MAP_HF_CONFIG = """\
import deepspeed
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

dschf = HfDeepSpeedConfig("ds.json")
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="cuda")
engine, _, _, _ = deepspeed.initialize(model=model, config="ds.json", model_parameters=model.parameters())
"""
MAP_WRONG_ARM = """\
from transformers import AutoModel
from transformers.integrations import is_deepspeed_zero3_enabled


def load(path):
    return AutoModel.from_pretrained(path, device_map="auto" if is_deepspeed_zero3_enabled() else None)
"""
MAP_CHAT = """\
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")
print(model)
"""
MAP_SENTENCES = """\
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments


def main(data, loss):
    options = {"torch_dtype": "bfloat16"}
    model = SentenceTransformer("Qwen/Qwen3-Embedding-0.6B", model_kwargs=%s)
    args = SentenceTransformerTrainingArguments(output_dir="out", num_train_epochs=1)
    SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=loss(model)).train()
"""
MAP_DDP = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=%s)
model = DDP(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for ids in torch.load(f"rows_{dist.get_rank()}.pt"):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
"""
