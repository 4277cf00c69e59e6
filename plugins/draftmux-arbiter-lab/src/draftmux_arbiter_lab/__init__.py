"""Problems in several steps, and how two small models with different strengths are trained on them."""
