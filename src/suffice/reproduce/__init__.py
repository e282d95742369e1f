"""The paper's figures from our code: `suffice reproduce` (see `suffice.reproduce.study`)."""
