/* Which of the formats a file is of. */
#include <string.h>
#include <strings.h>

#include "cli/inspect.h"

static const struct {
    const char *extension;
    const char *why;
} not_read[] = {
    {"engine", "a TensorRT engine: compiled for one kind of GPU and one TensorRT version; its "
               "weights cannot be listed"},
    {"plan", "a TensorRT engine: compiled for one kind of GPU and one TensorRT version; its "
             "weights cannot be listed"},
    {"trt", "a TensorRT engine: compiled for one kind of GPU and one TensorRT version; its weights "
            "cannot be listed"},
    {"h5", "HDF5 (Keras, TensorFlow): not read"},
    {"hdf5", "HDF5 (Keras, TensorFlow): not read"},
    {"keras", "a Keras archive (a zip with HDF5 in it): not read"},
    {"msgpack", "Flax's MessagePack: not read"},
    {"ot", "tensors of tch and rust-bert: not read"},
    {"tflite", "TensorFlow Lite: not read"},
    {"pb", "a TensorFlow graph: not read"},
    {"mlmodel", "Core ML: not read"},
    {"nemo", "a NeMo archive (a tar with pickles in it, which loading executes): not read"},
    {"mar", "a TorchServe archive (a zip with pickles and code in it): not read"},
    {"llamafile", "a llamafile (a program with a GGUF in it): not read"},
    {"dduf", "a DDUF archive: not read"},
    {"pte", "ExecuTorch: not read"},
    {"pdparams", "PaddlePaddle (a pickle, which loading executes): not read"},
    {"rknn", "compiled for Rockchip NPUs: not read"},
    {"onnx_data", "external data of an ONNX model: inspect the .onnx file"},
    {"7z", "a 7z archive: not read"},
};

static const char *extension_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    return dot ? dot + 1 : "";
}

const char *why_unread(const char *path)
{
    const char *extension = extension_of(path);
    for (size_t i = 0; i < ARRAY_LEN(not_read); i++)
        if (strcasecmp(extension, not_read[i].extension) == 0)
            return not_read[i].why;
    return NULL;
}

enum model_format model_format_of(const char *path)
{
    static const struct {
        const char *extension;
        enum model_format format;
    } table[] = {
        {"safetensors", MODEL_SAFETENSORS},
        {"gguf", MODEL_GGUF},
        {"bin", MODEL_PICKLE},
        {"pt", MODEL_PICKLE},
        {"pth", MODEL_PICKLE},
        {"ckpt", MODEL_PICKLE},
        {"pkl", MODEL_PICKLE},
        {"pickle", MODEL_PICKLE},
        {"joblib", MODEL_PICKLE},
        {"onnx", MODEL_ONNX},
        {"npy", MODEL_NUMPY},
        {"npz", MODEL_NUMPY_ZIP},
    };
    const char *extension = extension_of(path);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcasecmp(extension, table[i].extension) == 0)
            return table[i].format;
    return why_unread(path) ? MODEL_UNREAD : MODEL_NONE;
}

/* A length that can be a header's, and JSON behind it. */
static bool looks_like_safetensors(const unsigned char *p, size_t have, uint64_t size)
{
    uint64_t n = 0;
    if (have < 10)
        return false;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    return n >= 2 && n <= 100000000 && n <= size - 8 && p[8] == '{' &&
           (p[9] == '"' || p[9] == '}' || p[9] == ' ' || p[9] == '\n');
}

enum model_format model_format_in(const void *data, size_t have, uint64_t size)
{
    const unsigned char *p = data;
    if (have >= 4 && memcmp(p, "GGUF", 4) == 0)
        return MODEL_GGUF;
    if (looks_like_safetensors(p, have, size)) /* before pickles: a length can look like one */
        return MODEL_SAFETENSORS;
    if (have >= 6 && memcmp(p, "\x93NUMPY", 6) == 0)
        return MODEL_NUMPY;
    if (have >= 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5)
        return MODEL_PICKLE;
    return MODEL_NONE;
}

const char *model_format_name(enum model_format f)
{
    static const char *const names[] = {
        [MODEL_SAFETENSORS] = "safetensors",
        [MODEL_GGUF] = "GGUF",
        [MODEL_PICKLE] = "PyTorch pickle",
        [MODEL_ONNX] = "ONNX",
        [MODEL_NUMPY] = "NumPy",
        [MODEL_NUMPY_ZIP] = "NumPy archive",
        [MODEL_UNREAD] = "unread",
        [MODEL_NONE] = "unknown",
    };
    return names[f];
}
