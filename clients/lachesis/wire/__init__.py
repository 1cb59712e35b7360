"""The formats that client and server share: schemas and the binary layout of a group."""
