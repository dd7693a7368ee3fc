"""What DeepSpeed, transformers and accelerate refuse in a config when a run starts."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom

SYMPTOMS = (
    Symptom(
        name="batch-triangle",
        title="Batch sizes that do not multiply",
        meaning="train_batch_size must be micro batch x gradient accumulation x world size.",
        role="cause",
        causes=(
            Cause(
                "the numbers of the config contradict each other, or the world size of the launch", ("DSL130", "DSL408")
            ),
        ),
        patterns=(
            Pattern(r"Check batch related parameters\. .{0,160}world_size (?P<numbers>[\d !=*]+)"),
            Pattern(r"Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
        ),
    ),
    Symptom(
        name="fp16-and-bf16",
        title="fp16 and bf16 are both enabled",
        meaning="DeepSpeed takes one of them.",
        role="cause",
        causes=(Cause("both sections are enabled in the config", ("DSL140",)),),
        patterns=(Pattern(r"bfloat16 and fp16 modes cannot be simultaneously enabled"),),
    ),
    Symptom(
        name="config-refused",
        title="DeepSpeed refuses a key or a value of its config",
        meaning="Sections such as zero_optimization, fp16 and bf16 refuse keys they do not know and values of "
        "other types.",
        role="cause",
        causes=(
            Cause("a misspelt key, or one of another DeepSpeed release", ("DSL102",)),
            Cause("a value of the wrong type", ("DSL110",)),
        ),
        patterns=(
            Pattern(r"validation errors? for DeepSpeed\w+"),
            Pattern(r"Cannot provide deprecated parameter '\w+' and replacing parameter"),
        ),
    ),
    Symptom(
        name="config-removed",
        title="The config uses what DeepSpeed has removed",
        meaning="The presence of such a key stops the run.",
        role="cause",
        causes=(Cause("a section or setting of a removed feature", ("DSL107", "DSL108")),),
        patterns=(Pattern(r"DeepSpeedConfigError: .{0,200}has been removed"),),
    ),
    Symptom(
        name="config-duplicate-key",
        title="A key occurs twice in the DeepSpeed config",
        meaning="DeepSpeed refuses such a file.",
        role="cause",
        causes=(Cause("a key was pasted a second time", ("DSL111",)),),
        patterns=(Pattern(r"Duplicate keys in DeepSpeed config"),),
    ),
    Symptom(
        name="config-missing",
        title="A config file does not exist",
        meaning="The path is relative to the folder that the launcher runs in, on every node. DeepSpeed then tries the "
        "text as base64, so the error may not name the file.",
        role="cause",
        causes=(Cause("the path of a config in a launch command", ("DSL443",)),),
        patterns=(
            Pattern(r"No such file or directory: '(?P<path>[^']{0,300}\.(?:json|ya?ml))'"),
            Pattern(r"binascii\.Error: ", lead=r"deepspeed/runtime/config\.py"),
            Pattern(r"Expected a string path to an existing deepspeed config"),
        ),
    ),
    Symptom(
        name="trainer-mismatch",
        title="The DeepSpeed config contradicts the Trainer's arguments",
        meaning="transformers compares batch sizes, learning rate and others and refuses a difference.",
        role="cause",
        causes=(Cause('a number in the config that should be "auto"', ("DSL409",)),),
        patterns=(Pattern(r"DeepSpeed config values that mismatch TrainingArguments"),),
    ),
    Symptom(
        name="zero-inference-stage",
        title="Evaluation alone needs ZeRO stage 3",
        meaning="The Trainer refuses evaluate() or predict() without training under ZeRO stage 0, 1 or 2: there "
        "is nothing "
        "to shard.",
        role="cause",
        causes=(Cause("run the evaluation without DeepSpeed, or with stage 3"),),
        patterns=(Pattern(r"ValueError: ZeRO inference only makes sense with ZeRO Stage 3"),),
    ),
    Symptom(
        name="zero3-device-map",
        title="device_map does not go with ZeRO-3",
        meaning="ZeRO-3 places the parameters itself.",
        role="cause",
        causes=(Cause("remove device_map from from_pretrained"),),
        patterns=(Pattern(r"DeepSpeed Zero-3 is not compatible with"),),
    ),
    Symptom(
        name="zero3-empty-weights",
        title="A weight is empty: ZeRO-3 keeps only a shard of it",
        meaning="Under ZeRO-3 a parameter has shape [0] outside its forward pass. A checkpoint written from it "
        "is empty, "
        "and code that touches the weight fails.",
        role="cause",
        causes=(
            Cause("the checkpoint was written without gathering the weights", ("DSL161",)),
            Cause("weights are read or written outside deepspeed.zero.GatheredParameters"),
        ),
        patterns=(
            Pattern(r"Error\(s\) in loading state_dict for (?P<model>\w+)", follow=r"torch\.Size\(\[0\]\)"),
            Pattern(r"RuntimeError: 'weight' must be 2-D"),
            Pattern(r"RuntimeError: size mismatch, got input \(.*\), mat \(.*\), vec \(0\)"),
        ),
    ),
    Symptom(
        name="checkpoint-shapes",
        title="The checkpoint does not fit the model",
        meaning="Weights of the checkpoint have other shapes than those of the model.",
        role="cause",
        causes=(
            Cause("another model size, vocabulary or adapter than the one that was saved"),
            Cause("a checkpoint of ZeRO shards read as a plain one: convert it with zero_to_fp32.py"),
        ),
        patterns=(
            Pattern(
                r"Error\(s\) in loading state_dict for (?P<model>\w+)",
                follow=r"size mismatch for (?:(?!torch\.Size\(\[0\]\)).)*$",
            ),
        ),
    ),
)
