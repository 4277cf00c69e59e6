"""SwitchSD's router: a linear probe on a hidden state of the target says whether to copy."""
