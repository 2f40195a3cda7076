"""`outrider probe`: is speculation worth it for these models and these prompts?"""
