"""Training of graph functions: losses, optimizers, and the trainer that applies them.

setup = SetupTrainer(MSELoss(), Adam(0.01), [predictions, targets])
vm = VirtualMachine(build(setup(mod)), cpu())
trainer = Trainer(setup(mod), vm, cpu())
loss = trainer.update([x], [y])
"""

from __future__ import annotations

from tilewright.relax.training import loss, optimizer, utils
from tilewright.relax.training.setup_trainer import SetupTrainer
from tilewright.relax.training.trainer import Trainer
from tilewright.relax.training.utils import AppendLoss

__all__ = ["AppendLoss", "SetupTrainer", "Trainer", "loss", "optimizer", "utils"]
