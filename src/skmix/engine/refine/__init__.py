"""Methods around the EM loop: shrinkage, pruning, discriminative training, calibration, streams, merges."""
