"""Operations of the contract that are the same on every SQL engine."""
