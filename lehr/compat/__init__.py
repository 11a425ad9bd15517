"""What stands in for PyTorch around its tensors: the module name `torch`, TorchScript's decorators,
`torch.version`; and clear words for what lehr does not have.
"""
