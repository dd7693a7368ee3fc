"""The world of a probe run: private folders, a scrubbed environment, nothing of the user's job."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

# What a rank needs of the machine to find its libraries; everything else of the user's environment stays outside:
# RANK, MASTER_ADDR, NCCL_*, ACCELERATE_*, DS_* of a job would change the experiment.
_KEPT = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH",
    "ROCM_PATH", "SSL_CERT_FILE", "TZ", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
)  # fmt: skip
FOLDERS = ("home", "tmp", "extensions", "arms")


def make_folders(root: Path) -> None:
    """Make the private folders of a run."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)


# What names the network between hosts; on one host the ranks use the loopback device, whatever these say.
_NETWORK = (
    "GLOO_SOCKET_",
    "NCCL_SOCKET_",
    "NCCL_IB_",
    "NCCL_NET",
    "NCCL_CROSS_NIC",
    "NCCL_TOPO",
    "UCX_",
    "FI_",
    "RDMAV_",
)


def network(interface: str, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the user that name the network between hosts, for :func:`environment`.

    Args:
        interface: the device by which the hosts are known to reach each other; gloo uses it when the user names none
            (it would otherwise take the one that the own host name stands for, on many systems the loopback device).
    """
    found = {name: value for name, value in outer.items() if name.startswith(_NETWORK)}
    found.setdefault("GLOO_SOCKET_IFNAME", interface)
    found.setdefault("NCCL_SOCKET_IFNAME", "lo" if interface == "lo" else "")
    return found


def environment(
    root: Path, run: str, cuda: bool, outer: Mapping[str, str] = os.environ, between: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of the fork server and of all ranks of a run.

    Args:
        root: folder of the run, with :data:`FOLDERS` in it.
        run: id that marks every process of the run.
        cuda: whether the ranks may see GPUs.
        between: variables of the network between hosts; an empty one is left out.
    """
    found = {name: outer[name] for name in _KEPT if name in outer}
    home = str(root / "home")
    found |= {
        "DSLINT_PROBE_RUN": run,
        "HOME": home,
        # A private HOME must not hide packages of ``pip install --user``.
        "PYTHONUSERBASE": outer.get("PYTHONUSERBASE") or site.getuserbase() or "",
        "TMPDIR": str(root / "tmp"),
        "TORCH_EXTENSIONS_DIR": str(root / "extensions"),
        "XDG_CACHE_HOME": f"{home}/.cache",
        "HF_HOME": f"{home}/huggingface",
        "TRITON_CACHE_DIR": f"{home}/triton",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "WANDB_MODE": "disabled",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        # The flight recorder: which collectives a rank issued.
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    if cuda:
        if "CUDA_VISIBLE_DEVICES" in outer:
            found["CUDA_VISIBLE_DEVICES"] = outer["CUDA_VISIBLE_DEVICES"]
        found |= {"NCCL_SOCKET_IFNAME": "lo", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    else:
        found |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    for name, value in (between or {}).items():
        found[name] = value
        if not value:
            del found[name]
    return found


def bootstrap(python: str, module: str) -> list[str]:
    """The command that runs ``main()`` of a module of the probe in another interpreter.

    The folder that holds dslint comes last in ``sys.path``: it must not hide libraries of that interpreter.
    """
    home = str(Path(__file__).resolve().parent.parent.parent)
    code = f"import sys; sys.path.append({home!r}); from {module} import main; main()"
    return [python or sys.executable, "-c", code]
