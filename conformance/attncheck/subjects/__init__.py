"""The subjects that ship with the judge: one file a library."""
