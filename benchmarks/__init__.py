"""How fast Tilewright is: its own steps, operators, models.

    python -m benchmarks                       the quick set
    python -m benchmarks.core                  compile time, calls, import, search
    python -m benchmarks.ops --threads 1 --family gemm,softmax
    python -m benchmarks.models --threads 1 --peers inductor,onnxruntime,openvino

Subjects that are compared run in processes of their own, with threads pinned, and take turns within
one run, so that all of them meet the same machine.
"""
