"""Random programs for web/torch; see ../record_programs.py."""
