"""What is done with fits beyond EM's loop: shrinking, pruning, discriminative training, streams."""
