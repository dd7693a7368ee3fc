"""How each launcher reads its command line: which word is the script, how many processes start."""
