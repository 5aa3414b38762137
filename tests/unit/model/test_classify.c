#include <criterion/criterion.h>

#include "base/cleanup.h"
#include "model/modelpack.h"

Test(classify, by_name_then_by_size)
{
    static const struct {
        const char *path;
        uint64_t size;
        enum modelpack_kind kind;
    } table[] = {
        {"config.json", 1, MODELPACK_WEIGHT_CONFIG},
        {"1_Pooling/config.json", 1, MODELPACK_WEIGHT_CONFIG},
        {"model.safetensors.index.json", 1, MODELPACK_WEIGHT_CONFIG},
        {"tokenizer.model", 1, MODELPACK_WEIGHT_CONFIG},
        {"tokenizer.model.v3", 1, MODELPACK_WEIGHT_CONFIG},
        {"Tokenizer.JSON", 1, MODELPACK_WEIGHT_CONFIG},
        {"sentencepiece.bpe.model", 1, MODELPACK_WEIGHT_CONFIG},
        {"vocab.txt", 1, MODELPACK_WEIGHT_CONFIG},
        {"merges.txt", 1, MODELPACK_WEIGHT_CONFIG},
        {"chat_template.jinja", 1, MODELPACK_WEIGHT_CONFIG},
        {"x.meta", 1, MODELPACK_WEIGHT_CONFIG},
        {"config.json.bak", 1, MODELPACK_WEIGHT_CONFIG},
        {"package.json", 1, MODELPACK_WEIGHT_CONFIG},
        {"x.toml", 1, MODELPACK_WEIGHT_CONFIG},
        {"foo.model", 1, MODELPACK_WEIGHT},
        {"model.safetensors", 1, MODELPACK_WEIGHT},
        {"a/M-Q4_K_M.GGUF", 1, MODELPACK_WEIGHT},
        {"training_args.bin", 1, MODELPACK_WEIGHT},
        {"model.onnx_data", 1, MODELPACK_WEIGHT},
        {"model.onnx_data_1", 1, MODELPACK_WEIGHT},
        {"variables.data-00000-of-00001", 1, MODELPACK_WEIGHT},
        {"tensor12_3", 1, MODELPACK_WEIGHT},
        {"x.vocab", 1, MODELPACK_WEIGHT},
        {"tensor_3", 1, MODELPACK_CODE},
        {"modeling_x.py", 1, MODELPACK_CODE},
        {"Makefile", 1, MODELPACK_CODE},
        {"requirements-dev.txt", 1, MODELPACK_CODE},
        {"run.SH", 1, MODELPACK_CODE},
        {"x.R", 1, MODELPACK_CODE},
        {"x.jinja", 1, MODELPACK_CODE},
        {"template", 1, MODELPACK_CODE},
        {"lib.so", 1, MODELPACK_CODE},
        {"README.md", 1, MODELPACK_DOC},
        {"LICENSE", 1, MODELPACK_DOC},
        {"USE_POLICY.md", 1, MODELPACK_DOC},
        {"notes.txt", 1, MODELPACK_DOC},
        {"figures/a.PNG", 1, MODELPACK_DOC},
        {"events.out.tfevents.1.host", 1, MODELPACK_DOC},
        {"blob", 128000000, MODELPACK_CODE},
        {"blob", 128000001, MODELPACK_WEIGHT},
        {"x.json/blob", 1, MODELPACK_CODE},
        {"", 1, MODELPACK_CODE},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        cr_expect_eq(modelpack_kind_of(table[i].path, table[i].size), table[i].kind, "%s",
                     table[i].path);
}
