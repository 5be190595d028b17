"""Update rules: statistics in, the next parameters out. No rule sees a row."""
