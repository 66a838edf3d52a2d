"""From a trained torch model to files, small ones and those of other engines.

checkpoints    save and load: .asterism, safetensors, torch's own
onnx           ONNX, dense and without dead units
imported       a network of another framework, from an ONNX file
functions      parts of source files, each with what it calls
code           C files and web pages, sparse and without torch
steps/         the network as plain function calls
c/             one self-contained C file
web/           one self-contained web page, or a module for those who make pages
dense_engines  the engines to compare with
folding        batch norms as part of the convolutions before them, or as two vectors
few_values     the parameters that are to take few values, and the values they take
codebooks      training with few values: straight-through, inside the optimizer
value_sharing  training with few values: tied gradients, equal weights stay equal
"""
