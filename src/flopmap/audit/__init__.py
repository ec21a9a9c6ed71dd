"""Tables of measurements held against floors."""
