"""Examples of DSL238: which GPU each process takes."""

from __future__ import annotations

from dslint.rules.base import Example, bad, good

HEAD = "import argparse\n\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n    {}\n"

INIT = "dist.init_process_group('nccl')"

MAIN = "\n\nif __name__ == '__main__':\n    main()\n"

MORE: tuple[Example, ...] = (
    good(
        "the arm without distribution",
        {
            "train.py": "import torch\nimport torch.distributed as dist\n\n\ndef main(args):\n"
            "    if args.local_rank == -1:\n        device = torch.device('cuda:0')\n    else:\n"
            "        dist.init_process_group('nccl')\n        device = torch.device('cuda', args.local_rank)\n"
            "    return torch.nn.Linear(8, 8).to(device)\n" + MAIN.replace("main()", "main(parse())")
        },
    ),
    good(
        "a map from one device to another",
        {
            "train.py": HEAD.format(INIT)
            + "    return torch.load('x.pt', map_location={'cuda:0': f'cuda:{pick()}'})\n"
            + MAIN
        },
    ),
    good(
        "a map to GPU 0 from another device",
        {"train.py": HEAD.format(INIT) + "    return torch.load('x.pt', map_location={'cuda:1': 'cuda:0'})\n" + MAIN},
        select="DSL238",
    ),
    good(
        "accelerate in one process",
        {
            "train.py": "from accelerate import Accelerator\n\n\ndef main(model):\n"
            "    accelerator = Accelerator()\n    return accelerator.prepare(model.to('cuda:0'))\n"
            + MAIN.replace("main()", "main(build())"),
            "run.sh": "python train.py\n",
        },
    ),
    good(
        "accelerate for its device alone",
        {
            "infer.py": "from accelerate import Accelerator\n\n\ndef main(model):\n    accelerator = Accelerator()\n"
            "    return model.to('cuda:0'), accelerator.device\n" + MAIN.replace("main()", "main(build())"),
        },
    ),
    good(
        "a job of one process, to convert a checkpoint",
        {
            "train.py": "import argparse\n\nimport torch\nimport torch.distributed as dist\n\n"
            "args = argparse.Namespace(world_size=1, rank=0)\n"
            "dist.init_process_group('nccl', world_size=args.world_size, rank=args.rank)\n"
            "model = torch.nn.Linear(8, 8).to('cuda:0')\n\nif __name__ == '__main__':\n    print(model)\n"
        },
    ),
    good(
        "a job of one process, by a setting of the file",
        {
            "convert.py": "import argparse\n\nimport torch\nimport torch.distributed as dist\n\nPROCESSES = 1\n"
            "settings = argparse.Namespace(world_size=PROCESSES, rank=0)\nargs = settings\n"
            "dist.init_process_group('nccl', world_size=args.world_size, rank=args.rank)\n"
            "model = torch.nn.Linear(8, 8).to('cuda:0')\n\nif __name__ == '__main__':\n    print(model)\n"
        },
        select="DSL238",
    ),
    good(
        "a number for a start without a launcher",
        {
            "train.py": "import os\n\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n"
            "    if 'LOCAL_RANK' not in os.environ:\n        os.environ['LOCAL_RANK'] = '0'\n"
            "    dist.init_process_group('nccl')\n"
            "    torch.cuda.set_device(int(os.environ.get('LOCAL_RANK', '0')))\n" + MAIN
        },
        select="DSL238",
    ),
    bad(
        "an argument whose default is one process",
        {
            "train.py": "import argparse\n\nimport torch\nimport torch.distributed as dist\n\n"
            "parser = argparse.ArgumentParser()\nparser.add_argument('--world_size', type=int, default=1)\n"
            "args = parser.parse_args()\n"
            "dist.init_process_group('nccl', world_size=args.world_size)\n"
            "model = torch.nn.Linear(8, 8).to('cuda:0')\n\nif __name__ == '__main__':\n    print(model)\n"
        },
        at="train.py:10 info",
    ),
    good("no job", {"demo.py": "import torch\n\nmodel = torch.nn.Linear(8, 8).to('cuda:0')\n"}),
    good(
        "a module that a script calls",
        {"model.py": HEAD.format(INIT) + "    model = torch.nn.Linear(8, 8).to('cuda:0')\n"},
    ),
    good(
        "a number that is no device",
        {"train.py": HEAD.format(INIT) + "    return scale.to(0)\n"},
    ),
    good(
        "a server",
        {
            "demo.py": "import gradio\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n"
            "    dist.init_process_group('nccl')\n    gradio.Interface(torch.nn.Linear(8, 8).to('cuda:0'))\n" + MAIN
        },
    ),
)
