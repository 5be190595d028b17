"""Methods around the EM loop: shrinkage, group shifts, discriminative training, calibration, streams."""
