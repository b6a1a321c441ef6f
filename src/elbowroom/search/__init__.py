"""Proposes regions: fast bounds, their derivatives, and solvers. Nothing in here says that anything is certified."""
