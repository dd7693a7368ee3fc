"""The table of symptoms, one file per family, in the order of the documentation."""

from __future__ import annotations

from dslint.triage.symptom import Symptom
from dslint.triage.symptoms import collectives, config, extension, launch, loss, nccl, process, rendezvous

FAMILIES: dict[str, tuple[Symptom, ...]] = {
    "Start and rendezvous": rendezvous.SYMPTOMS,
    "PyTorch extensions": extension.SYMPTOMS,
    "Collectives": collectives.SYMPTOMS,
    "NCCL and CUDA": nccl.SYMPTOMS,
    "Loss": loss.SYMPTOMS,
    "Config and checkpoint": config.SYMPTOMS,
    "Launch": launch.SYMPTOMS,
    "Processes and memory": process.SYMPTOMS,
}
SYMPTOMS: tuple[Symptom, ...] = tuple(symptom for family in FAMILIES.values() for symptom in family)
BY_NAME: dict[str, Symptom] = {symptom.name: symptom for symptom in SYMPTOMS}
