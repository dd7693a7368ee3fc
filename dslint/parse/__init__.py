"""Text -> positioned documents. Parsers tolerate errors: what can be read is read, the rest is reported."""
