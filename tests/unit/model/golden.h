/* A ModelPack of three files, the documents byte for byte as another packer and skopeo took them.
 * Ours differ in what we add: the vendor in the config, annotations on the manifest. */
#ifndef WB_TESTS_GOLDEN_H
#define WB_TESTS_GOLDEN_H

#define GOLDEN_CONFIG_JSON "{\"model_type\":\"llama\"}\n"

#define GOLDEN_LAYERS                                                                              \
    "\"layers\":[{\"mediaType\":\"application/vnd.cncf.model.weight.config.v1.ra"                  \
    "w\",\"digest\":\"sha256:013e93c1cc397541961e670f84ea0d42784536cab4e9d3c5d5"                   \
    "b13589f53ab684\",\"size\":23,\"annotations\":{\"org.cncf.model.file.mediatyp"                 \
    "e.untested\":\"false\",\"org.cncf.model.file.metadata+json\":\"{\\\"name\\\":\\\"c"           \
    "onfig.json\\\",\\\"mode\\\":420,\\\"uid\\\":0,\\\"gid\\\":0,\\\"size\\\":23,\\\"mtime\\\":"   \
    "\\\""                                                                                         \
    "1970-01-01T00:00:00Z\\\",\\\"typeflag\\\":0}\",\"org.cncf.model.filepath\":\"con"             \
    "fig.json\",\"org.opencontainers.image.title\":\"config.json\"}},{\"mediaType"                 \
    "\":\"application/vnd.cncf.model.weight.v1.raw\",\"digest\":\"sha256:4f1311d5"                 \
    "941da14dcf4894ea8772f962a9d4b6a89b60e64fad1ee9fa69aedc70\",\"size\":224,\""                   \
    "annotations\":{\"org.cncf.model.file.mediatype.untested\":\"false\",\"org.cn"                 \
    "cf.model.file.metadata+json\":\"{\\\"name\\\":\\\"tiny-F32.gguf\\\",\\\"mode\\\":420"         \
    ",\\\"uid\\\":0,\\\"gid\\\":0,\\\"size\\\":224,\\\"mtime\\\":\\\"1970-01-01T00:00:00Z\\\",\\"  \
    "\"typeflag\\\":0}\",\"org.cncf.model.filepath\":\"tiny-F32.gguf\",\"org.opencon"              \
    "tainers.image.title\":\"tiny-F32.gguf\"}},{\"mediaType\":\"application/vnd.c"                 \
    "ncf.model.doc.v1.raw\",\"digest\":\"sha256:da0f266deed7c2c66f4708aa801d1ec"                   \
    "d4aa289d2ee87e9c4525b30c8cba9ac88\",\"size\":7,\"annotations\":{\"org.cncf.m"                 \
    "odel.file.mediatype.untested\":\"false\",\"org.cncf.model.file.metadata+js"                   \
    "on\":\"{\\\"name\\\":\\\"README.md\\\",\\\"mode\\\":420,\\\"uid\\\":0,\\\"gid\\\":0,"         \
    "\\\"size\\\""                                                                                 \
    ":7,\\\"mtime\\\":\\\"1970-01-01T00:00:00Z\\\",\\\"typeflag\\\":0}\",\"org.cncf.model"         \
    ".filepath\":\"README.md\",\"org.opencontainers.image.title\":\"README.md\"}}]"

#define GOLDEN_CONFIG                                                                              \
    "{\"config\":{\"architecture\":\"transformer\",\"format\":\"gguf\",\"precision\":\"f"          \
    "loat32\"},\"descriptor\":{\"family\":\"llama\",\"name\":\"tiny\",\"revision\":\"0000"         \
    "000000000000000000000000000000000000\",\"sourceURL\":\"https://huggingface"                   \
    ".co/o/tiny\"},\"modelfs\":{\"diffIds\":[\"sha256:013e93c1cc397541961e670f84e"                 \
    "a0d42784536cab4e9d3c5d5b13589f53ab684\",\"sha256:4f1311d5941da14dcf4894e"                     \
    "a8772f962a9d4b6a89b60e64fad1ee9fa69aedc70\",\"sha256:da0f266deed7c2c66f4"                     \
    "708aa801d1ecd4aa289d2ee87e9c4525b30c8cba9ac88\"],\"type\":\"layers\"}}"

#endif
