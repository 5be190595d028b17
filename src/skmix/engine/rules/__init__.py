"""Update rules: from sufficient statistics to the next parameters, without access to rows."""
