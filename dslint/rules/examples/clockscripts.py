"""Scripts for examples: ranks that look at their own clocks to stop or to save."""

# How a callback of Lightning asks whether its time is over.
LIMIT_OF_TIME = """\
import time

from lightning.pytorch.callbacks import Callback

class Limit(Callback):
    def __init__(self, seconds):
        self.seconds = seconds
        self.start = time.time()

    def passed(self):
        return time.time() - self.start

    def on_train_batch_end(self, trainer, *_):
        over = %s
        if over and not trainer.should_stop:
            trainer.should_stop = True
            trainer.save_checkpoint("interrupted.ckpt")
"""
TOLD_TIME = "trainer.strategy.broadcast(self.passed() > self.seconds, src=0)"
# What the flag gets.
STOP_BY_CLOCK = """\
import time

import lightning as L

class Net(L.LightningModule):
    def on_fit_start(self):
        self.start = time.monotonic()

    def on_train_epoch_end(self):
        late = time.monotonic() - self.start > self.hparams.seconds
        self.trainer.should_stop = %s
"""
AGREED_TIME = "self.trainer.strategy.reduce_boolean_decision(late, all=False)"
SAVE_BY_CLOCK = """\
from time import monotonic

from lightning.pytorch.callbacks import Callback

class Save(Callback):
    last = 0.0

    def on_train_batch_end(self, trainer, *_):
        if monotonic() - self.last < 600:
            return
        self.last = monotonic()
        trainer.save_checkpoint("latest.ckpt")
"""
