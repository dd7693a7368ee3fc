"""What rules ask about ranks: who comes where, which test parts them, and what only some of them do."""
