"""Where jobs live: the contract that every engine keeps, and the engines."""
