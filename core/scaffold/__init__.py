"""What `draftmux new-plugin` writes: templates of a pip package with one plugin, and how they are filled in."""
