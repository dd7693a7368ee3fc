"""Calls that make the default process group."""

from __future__ import annotations

# Calls that create the default process group.
# torch: distributed_c10d.init_process_group(backend, init_method, timeout, ...);
# DeepSpeed: comm/comm.py init_distributed(dist_backend, auto_mpi_discovery, distributed_port, verbose, timeout, ...).
GROUP_CREATORS: dict[str, int] = {
    "torch.distributed.init_process_group": 2,
    "torch.distributed.distributed_c10d.init_process_group": 2,
    "deepspeed.comm.init_process_group": 2,
    "deepspeed.init_distributed": 4,
    "deepspeed.comm.init_distributed": 4,
    "deepspeed.comm.comm.init_distributed": 4,
}
