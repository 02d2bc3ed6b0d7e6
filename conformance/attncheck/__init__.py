"""The judge: is this attention right, and if not, what exactly is wrong?"""
