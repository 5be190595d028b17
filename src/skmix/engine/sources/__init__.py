"""Row sources: the E-step where the rows are. Nothing above this room asks what kind of rows there are."""
