"""Logs of failed and healthy runs for the triage tests, built from what launchers and libraries print.

``CASES`` maps a symptom to a log and the symptoms that it shows, ``HEALTHY`` holds logs that show none.
"""

# ruff: noqa: E501, W291 - log lines are as long as they are
from __future__ import annotations

from typing import NamedTuple

START = """\
W1120 12:00:01.100000 4242 site-packages/torch/distributed/run.py:793] 
W1120 12:00:01.100000 4242 site-packages/torch/distributed/run.py:793] *****************************************
W1120 12:00:01.100000 4242 site-packages/torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default
W1120 12:00:01.100000 4242 site-packages/torch/distributed/run.py:793] *****************************************
[2026-11-20 12:00:09,311] [INFO] [real_accelerator.py:254:get_accelerator] Setting ds_accelerator to cuda (auto detect)
[2026-11-20 12:00:09,412] [INFO] [real_accelerator.py:254:get_accelerator] Setting ds_accelerator to cuda (auto detect)
[2026-11-20 12:00:11,020] [INFO] [comm.py:821:init_distributed] cdb=None
[2026-11-20 12:00:11,021] [INFO] [comm.py:852:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl
[2026-11-20 12:00:11,021] [INFO] [config.py:735:__init__] Config mesh_device None world_size = 4
You are using a model of type llava to instantiate a model of type llava_llama.
Loading checkpoint shards:  50%|█████     | 2/4 [00:06<00:06,  3.1s/it]
Loading checkpoint shards: 100%|██████████| 4/4 [00:12<00:00,  3.1s/it]
Some weights of LlavaLlamaForCausalLM were newly initialized: ['mm_projector.0.weight', 'mm_projector.0.bias']
You should probably TRAIN this model on a down-stream task to be able to use it for predictions and inference.
Formatting inputs...Skip in lazy mode
Parameter Offload - Persistent parameters statistics: param_count = 241, numel = 1053696
trainable params: 159,907,840 || all params: 7,222,788,096 || trainable%: 2.21
  0%|          | 0/5198 [00:00<?, ?it/s]
"""
STEPS = "".join(
    f"{{'loss': {1.9 - step * 0.031:.4f}, 'grad_norm': {1.1 + step / 7:.6f}, 'learning_rate': {step * 1.3e-07:.4e}, 'epoch': 0.0}}\n"
    f"\r  0%|          | {step}/5198 [{step * 7:02d}:12<10:07:02,  7.01s/it]"
    for step in range(1, 9)
)
RUN = START + STEPS + "\n"
ELASTIC = """\
E1120 12:34:59.000000 4242 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: {rank} (pid: 517{rank}) of binary: /opt/conda/bin/python
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_12:34:58
  host      : node1.cluster
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 517{rank})
  error_file: <N/A>
  traceback : {note}
============================================================
"""


class Case(NamedTuple):
    """A log and the names of all symptoms that it shows, the most telling first; ``story`` is part of the story."""

    log: str
    shows: tuple[str, ...]
    story: str = ""


def watchdog(
    rank: int, seq: int = 808, op: str = "ALLREDUCE", numel: int = 9801523, done: int = 0, queued: int = 0
) -> str:
    """The lines of torch's NCCL watchdog on one rank."""
    head = f"[rank{rank}]:[E1120 12:34:56.{rank}23456 ProcessGroupNCCL.cpp"
    return (
        f"{head}:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
        f"NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
        f"{head}:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or timeout) detected by "
        f"watchdog at work: {seq}, last enqueued NCCL work: {queued or seq + 3}, last completed NCCL work: {done or seq - 1}.\n"
        f"{head}:630] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
        "kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"{head}:636] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
    )


def raised(error: str, rank: int | None = None, frame: str = "/home/me/train.py") -> str:
    """A traceback of a rank as torch prints it, or without a tag."""
    tag = f"[rank{rank}]: " if rank is not None else ""
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/run.py", line 17, in <module>',
        "    main()",
        f'  File "{frame}", line 211, in step',
        "    out = self.call(batch)",
        "          ^^^^^^^^^^^^^^^^",
        *error.splitlines(),
    ]
    return "".join(f"{tag}{line}\n" for line in lines)


def elastic(rank: int, code: int, note: str = "") -> str:
    """torchelastic's report."""
    return ELASTIC.format(
        rank=rank,
        code=code,
        note=note or "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    )


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp"
USING = "Using /home/u/.cache/torch_extensions/py311_cu121 as PyTorch extensions root...\n"
SIZES = f"what():  [enforce fail at {GLOO[1:]}/pair.cc:456] op.preamble.length <= op.nbytes. 40 vs 16. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
FINGER = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float), but Rank 1 is "
    "running collective: CollectiveFingerPrint(SequenceNumber=5, OpType=BROADCAST, TensorShape=[4], TensorDtypes=Float)."
    "Collectives differ in the following aspects:   Op type: ALLREDUCEvs BROADCAST"
)
SOCKET = "The client socket has timed out after 1800s while trying to connect to (10.0.0.1, 29500)."
NCCL = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2251, {}, NCCL version 2.21.5\n"
PYDANTIC = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig\naio\n"
    "  Extra inputs are not permitted [type=extra_forbidden, input_value={}, input_type=dict]\n"
    "    For further information visit https://errors.pydantic.dev/2.11/v/extra_forbidden"
)
LOADING = "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize mismatch for {}: copying a param with shape torch.Size([{}]) from checkpoint, the shape in current model is torch.Size([32000, 4096])."
COLLAPSED = "".join(
    f"{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': {step * 1e-06:.1e}, 'epoch': 0.01}}\n" for step in range(2, 12)
)
XTUNER = "11/20 12:10:00 - mmengine - INFO - xtuner_dataset_timeout = 1:00:00\n"
BARRIER = "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3600000 ms"


def simple(error: str, name: str, rank: int | None = None) -> Case:
    """A run that ends with one exception."""
    return Case(RUN + raised(error, rank), (name,))


CASES: dict[str, Case] = {
    "client-socket-timeout": Case(
        START + f"[rank3]:[E1120 12:30:01.100 socket.cpp:957] [c10d] {SOCKET}\n" + raised(f"torch.distributed.DistNetworkError: {SOCKET}", 3),
        ("client-socket-timeout",),
    ),
    "clients-missing": Case(
        START + raised("torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 6/8 clients joined.", 0),
        ("clients-missing",),
    ),
    "store-wait-timeout": simple("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//worker/3", "store-wait-timeout", 1),
    "elastic-rendezvous": simple("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: ", "elastic-rendezvous"),
    "host-not-resolved": Case(
        START + "[W1120 12:00:20.100 socket.cpp:764] [c10d] The IPv6 network addresses of (node01, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n" * 3,
        ("host-not-resolved",),
    ),
    "address-in-use": simple(
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "address-in-use",
    ),
    "port-out-of-range": simple("ValueError: port must have value from 0 to 65535 but was 70000.", "port-out-of-range"),
    "rank-not-set": simple("ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set", "rank-not-set"),
    "interface-missing": Case(
        START + "node1:5170:5170 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth7\nnode1:5170:5170 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n",
        ("interface-missing",),
    ),
    "gloo-connect": simple("RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", "gloo-connect"),
    "ssh-refused": Case("[2026-11-20 12:00:01,000] [INFO] [runner.py:610:main] cmd = pdsh -S -f 1024 -w node1,node2\n" + "node2: Host key verification failed.\r\npdsh@login: node2: ssh exited with exit code 255\n" + START, ("ssh-refused",)),
    "extension-stall": Case(START + USING * 4 + "Loading extension module fused_adam...\nTime to load fused_adam op: 0.21 seconds\n", ("extension-stall",)),
    "extension-broken": simple("ImportError: /home/u/.cache/torch_extensions/py311_cu121/fused_adam/fused_adam.so: file too short", "extension-broken"),
    "nccl-watchdog": Case(RUN + watchdog(0) + watchdog(1) + watchdog(3), ("nccl-watchdog",)),
    "nccl-heartbeat": Case(
        RUN + "[rank5]:[F1120 13:10:01.100 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 5] [PG ID 0 PG GUID 0(default_pg) Rank 5] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.\n"
        "[rank5]:[E1120 13:10:00.100 ProcessGroupNCCL.cpp:1296] [PG ID 0 PG GUID 0(default_pg) Rank 5] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n",
        ("nccl-heartbeat",),
    ),
    "collective-mismatch": Case(RUN + raised(FINGER, 0), ("collective-mismatch",)),
    "gloo-size-mismatch": Case(RUN + "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  " + SIZES, ("gloo-size-mismatch",)),
    "peer-closed": Case(RUN + raised(f"RuntimeError: {GLOO}/pair.cc:553] Connection closed by peer [127.0.0.1]:25008. This is typically caused by a remote worker crashing.", 1), ("peer-closed",)),
    "gloo-timeout": Case(RUN + raised(f"RuntimeError: {GLOO}/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete", 0), ("gloo-timeout",)),
    "monitored-barrier": Case(RUN + raised(f"RuntimeError: {BARRIER}\n Original exception: ", 0), ("monitored-barrier",)),
    "xtuner-dataset-timeout": Case(START + XTUNER + raised(f"RuntimeError: {BARRIER}", 0), ("xtuner-dataset-timeout", "monitored-barrier")),
    "unused-parameters": simple("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.", "unused-parameters", 1),
    "gather-of-text": simple("TypeError: Unsupported types (<class 'str'>) passed to `_pad_across_processes`. Only nested list/tuple/dicts of objects that are valid for `is_torch_tensor` should be passed.", "gather-of-text", 0),
    "timeout-type": simple("TypeError: Expected timeout argument to be of type datetime.timedelta, got 1800", "timeout-type"),
    "duplicate-gpu": Case(RUN + NCCL.format("invalid usage (run with NCCL_DEBUG=WARN for details)") + "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n", ("nccl-invalid-usage", "duplicate-gpu")),
    "device-ordinal": simple("RuntimeError: CUDA error: invalid device ordinal", "device-ordinal", 5),
    "nccl-invalid-usage": simple(NCCL.format("invalid argument") .replace("invalid argument", "invalid usage (run with NCCL_DEBUG=WARN for details)"), "nccl-invalid-usage", 0),
    "nccl-system-error": simple(NCCL.format("unhandled system error (run with NCCL_DEBUG=INFO for details)"), "nccl-system-error", 0),
    "nccl-cuda-error": simple(NCCL.format("unhandled cuda error (run with NCCL_DEBUG=INFO for details)"), "nccl-cuda-error", 0),
    "cuda-oom": Case(
        RUN + raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.02 GiB is free.", 3) + watchdog(0) + watchdog(1) + watchdog(2),
        ("cuda-oom", "nccl-watchdog"),
        "Rank 3 failed first",
    ),
    "loss-zero": Case(RUN + COLLAPSED, ("loss-zero",)),
    "loss-nan": Case(RUN + "".join(f"Epoch: 0, Step: {step}, Rank: 0, loss = nan\n" for step in range(9, 30)), ("loss-nan",)),
    "loss-scale-minimum": Case(
        RUN + "".join(f"[2026-11-20 12:01:{40 - power},000] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**power}, reducing to {2 ** (power - 1)}\n" for power in range(16, 0, -1))
        + raised("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
        ("loss-scale-minimum",),
    ),
    "batch-triangle": simple("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 2 * 8", "batch-triangle"),
    "fp16-and-bf16": simple("AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled", "fp16-and-bf16"),
    "config-refused": simple(PYDANTIC, "config-refused"),
    "config-removed": simple("deepspeed.runtime.config.DeepSpeedConfigError: DeepSpeed Sparse Attention has been removed; the 'sparse_attention' configuration block is no longer supported.", "config-removed"),
    "config-duplicate-key": simple("ValueError: Duplicate keys in DeepSpeed config: ['train_batch_size']", "config-duplicate-key"),
    "config-missing": simple("FileNotFoundError: [Errno 2] No such file or directory: 'configs/ds_config.json'", "config-missing"),
    "trainer-mismatch": simple("ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n- ds gradient_accumulation_steps=8 vs hf gradient_accumulation_steps=4", "trainer-mismatch"),
    "zero-inference-stage": simple("ValueError: ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config", "zero-inference-stage"),
    "zero3-device-map": simple("ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`.", "zero3-device-map"),
    "zero3-empty-weights": simple(LOADING.format("model.embed_tokens.weight", "0"), "zero3-empty-weights", 0),
    "checkpoint-shapes": simple(LOADING.format("lm_head.weight", "32001, 4096"), "checkpoint-shapes"),
    "option-as-command": Case(RUN + "scripts/v1_5/finetune.sh: line 14: --bf16: command not found\n", ("option-as-command",)),
    "local-rank-argument": Case(START + "usage: train.py [-h] [--data DATA]\ntrain.py: error: unrecognized arguments: --local-rank=0\n", ("local-rank-argument",)),
    "launcher-argument": Case(START + "train.py: error: unrecognized arguments: --nproc_per_node 8\n", ("launcher-argument",)),
    "launcher-unknown": simple("NotImplementedError: Unknown launcher pytorch", "launcher-unknown"),
    "slurm-time-limit": Case(RUN + "slurmstepd: error: *** JOB 918273 ON node1 CANCELLED AT 2026-11-20T14:00:12 DUE TO TIME LIMIT ***\n", ("slurm-time-limit",)),
    "host-killed": Case(RUN + elastic(3, -9, "Signal 9 (SIGKILL) received by PID 5173"), ("host-killed", "launcher-report"), "Rank 3"),
    "slurm-memory-limit": Case(RUN + "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=918273.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.\n", ("slurm-memory-limit",)),
    "shared-memory": Case(RUN + "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n" + raised("RuntimeError: DataLoader worker (pid 6612) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."), ("shared-memory",)),
    "disk-full": simple("OSError: [Errno 28] No space left on device: '/ckpt/global_step200/zero_pp_rank_0.pt'", "disk-full"),
    "bus-error": Case(RUN + elastic(2, -7, "Signal 7 (SIGBUS) received by PID 5172"), ("bus-error", "launcher-report")),
    "segmentation-fault": Case(RUN + "[2026-11-20 12:30:00,000] [ERROR] [launch.py:325:sigkill_handler] ['/opt/conda/bin/python', '-u', 'train.py', '--local_rank=7'] exits with return code = -11\n", ("segmentation-fault",)),
    "aborted": Case(RUN + watchdog(0) + elastic(0, -6, "Signal 6 (SIGABRT) received by PID 5170"), ("nccl-watchdog", "aborted", "launcher-report")),
    "launcher-report": Case(RUN + elastic(2, 1), ("launcher-report",), "rank 2 (exit code 1)"),
}  # fmt: skip

HEALTHY: dict[str, str] = {
    "plain": RUN,
    "settings": RUN + "ddp_timeout=1800,\ntimeout=1800s\n'init_process_group': {'timeout': '0:30:00'}\nNCCL_TIMEOUT=1800 watchdog enabled\n"
    + "NCCL INFO TORCH_NCCL_BLOCKING_WAIT set; Watchdog thread started\nWorkNCCL timeout is 600000 ms\n",
    "small losses": START + "".join(f"{{'loss': {value}, 'grad_norm': 0.01, 'learning_rate': 1e-05}}\n" for value in (0.9, 0.05, 0.0012, 0.0009, 0.0003, 0.0001)) + STEPS,
    "loss that shrinks to 0": START + "".join(f"{{'loss': {0.8 * 0.6**step:.4f}, 'grad_norm': 0.01}}\n" for step in range(60)),
    "side losses": RUN + "".join(f"{{'loss': 1.{step}, 'aux_loss': 0.0, 'router_loss': 0.0, 'grad_norm': 0.4}}\n" for step in range(20)),
    "reinforcement learning": START + "".join("{'loss': 0.0, 'grad_norm': 0.12, 'reward': 0.4, 'kl': 0.0, 'completion_length': 98}\n" for _ in range(20)),
    "single zeros": RUN + "".join(f"{{'loss': {0.0 if step % 4 == 0 else 1.3}, 'grad_norm': 0.4}}\n" for step in range(80)),
    "strings of the fifth Trainer": START + "".join(f"{{'loss': '0.0{step}1', 'grad_norm': '0.4', 'epoch': '0'}}\n" for step in range(30)),
    "extension that loads": START + USING * 2 + "Detected CUDA files, patching ldflags\nEmitting ninja build file /home/u/x/build.ninja...\nBuilding extension module fused_adam...\n"
    "ninja: no work to do.\nLoading extension module fused_adam...\nTime to load fused_adam op: 0.08 seconds\nLoading extension module fused_adam...\nTime to load fused_adam op: 0.10 seconds\n",
    "extension, then training": START + USING + "Loading extension module cpu_adam...\n" + STEPS,
    "first overflows": START + "".join(f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**power}, reducing to {2 ** (power - 1)}\n" for power in range(32, 15, -1)) + STEPS,
    "words in a list": RUN + "Killed bugs: 12\nexitcode: 0\nprocess 12 exits with return code = 0\nError rate: 0.12\nreturn code = 0\n",
    "evaluation of text": RUN + "prediction: the bus error was out of memory of mine\nloss of peer: 12\nanswer: RANK expected\n",
    "handled exception": RUN + raised("requests.exceptions.ConnectionError: wandb is slow") + STEPS,
    "slurm and pdsh words": RUN + "srun: job 918273 queued and waiting for resources\nsrun: job 918273 has been allocated resources\nnode1: ready\n",
    "cancelled by hand": RUN + "slurmstepd: error: *** JOB 918273 ON node1 CANCELLED AT 2026-11-20T14:00:12 ***\n",
    "a picture that is no base64": RUN + raised("binascii.Error: Incorrect padding"),
    "other missing file": RUN + "tail: error: No such file or directory: 'notes.md'\n",
}  # fmt: skip

# Other releases and launchers say the same in other words.
OTHER_WORDS = [
    ("RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store "
     "by key '0', but store->get('0') got error: Socket Timeout", "store-wait-timeout"),
    ("[PG ID 0 PG GUID 0 Rank 5] Process group watchdog thread terminated with exception: NCCL error: remote process "
     "exited or there was a network error, NCCL version 2.21.5", "peer-closed"),
    ("[rank8]:[W318 10:00:41.915 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=135, addr=[a]:48750, "
     "remote=[b]:20000): Connection reset by peer", "peer-closed"),
    ("RuntimeError: NCCL communicator was aborted on rank 2.  Original reason for failure was: [Rank 2] Watchdog "
     "caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=BROADCAST, Timeout(ms)=1800000) ran for "
     "1805457 milliseconds before timing out.", "nccl-watchdog"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 3; 79.15 GiB total)", "cuda-oom"),
    ("srun: error: node1: task 3: Out Of Memory", "host-killed"),
    ("srun: error: node1: task 5: Segmentation fault", "segmentation-fault"),
    ("srun: error: node1: task 5: Bus error (core dumped)", "bus-error"),
    ("srun: error: node1: task 5: Exited with exit code 137", "host-killed"),
    ("slurmstepd: error: Exceeded job memory limit at some point.", "slurm-memory-limit"),
    ("/var/spool/job/slurm_script: line 12: 51702 Killed                  python train.py", "host-killed"),
    ("OSError: [Errno 98] Address already in use", "address-in-use"),
    ("OverflowError: bind(): port must be 0-65535.", "port-out-of-range"),
    ("finetune.sh: line 9: --lr: command not found", "option-as-command"),
    ("{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.4}", "loss-nan"),
    ("RuntimeError: 'weight' must be 2-D", "zero3-empty-weights"),
]  # fmt: skip
