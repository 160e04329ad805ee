"""The text and JSON that commands print: values in, lines or documents out. Lines fit 100 columns."""
