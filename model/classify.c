/* Which layer a file belongs to, by modctl's tables (its `InferFileType`): a user who packs a
 * folder with modctl and one who pulls it from here get the same kinds. */
#include "model/classify.h"

#include <fnmatch.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/ref.h"
#include "model/modelpack.h"

/* A file that no pattern knows and that is larger than this is taken for weights. */
#define WEIGHT_SIZE_MIN 128000000u

static const char *const config_patterns[] = {"*.json",
                                              "*.jsonl",
                                              "*.json5",
                                              "*.jsonc",
                                              "*.yaml",
                                              "*.yml",
                                              "*.toml",
                                              "*.ini",
                                              "*.config",
                                              "*.cfg",
                                              "*.conf",
                                              "*.properties",
                                              "*.props",
                                              "*.prop",
                                              "*.xml",
                                              "*.xsd",
                                              "*.rng",
                                              "*.modelcard",
                                              "*.meta",
                                              "*tokenizer.model*",
                                              "*.tiktoken",
                                              "vocab.txt",
                                              "merges.txt",
                                              "added_tokens.txt",
                                              "spiece.model",
                                              "sentencepiece*.model",
                                              "sentencepiece*.vocab",
                                              "tiktoken.model",
                                              "chat_template.jinja",
                                              "config.json.*",
                                              "*.hparams",
                                              "*.params",
                                              "*.hyperparams",
                                              "*.wandb",
                                              "*.mlflow",
                                              "*.tensorboard"};

static const char *const weight_patterns[] = {
    "*.safetensors", "*.bin",         "*.bin.*",
    "*.pt",          "*.pth",         "*.mar",
    "*.pte",         "*.pt2",         "*.ptl",
    "*.tflite",      "*.h5",          "*.hdf",
    "*.hdf5",        "*.pb",          "*.meta",
    "*.data-*",      "*.index",       "*.gguf",
    "*.gguf.*",      "*.ggml",        "*.ggmf",
    "*.ggjt",        "*.q4_0",        "*.q4_1",
    "*.q5_0",        "*.q5_1",        "*.q8_0",
    "*.f16",         "*.f32",         "*.ckpt",
    "*.checkpoint",  "*.dist_ckpt",   "tensor[0-9]*_[0-9]*",
    "*.tensor",      "*.weights",     "*.state",
    "*.embedding",   "*.vocab",       "*.ot",
    "*.engine",      "*.trt",         "*.onnx",
    "*.onnx_data*",  "*.msgpack",     "*.model",
    "*.pkl",         "*.pickle",      "*.keras",
    "*.joblib",      "*.npy",         "*.npz",
    "*.nc",          "*.mlmodel",     "*.coreml",
    "*.mil",         "*.mleap",       "*.surml",
    "*.llamafile",   "*.llamafile.*", "*.caffemodel",
    "*.prototxt",    "*.dlc",         "*.circle",
    "*.nb",          "*.arrow",       "*.parquet",
    "*.ftz",         "*.ark",         "*.db"};

static const char *const code_patterns[] = {
    /* languages */
    "*.py", "*.ipynb", "*.sh", "*.patch", "*.c", "*.h", "*.hxx", "*.cpp", "*.cc", "*.cxx", "*.c++",
    "*.hpp", "*.hh", "*.h++", "*.java", "*.js", "*.mjs", "*.cjs", "*.jsx", "*.ts", "*.tsx", "*.go",
    "*.rs", "*.swift", "*.rb", "*.php", "*.scala", "*.kt", "*.kts", "*.r", "*.m", "*.mm", "*.f",
    "*.f90", "*.f95", "*.f03", "*.f08", "*.jl", "*.lua", "*.pl", "*.pm", "*.cs", "*.vb", "*.dart",
    "*.groovy", "*.elm", "*.erl", "*.hrl", "*.ex", "*.exs", "*.hs", "*.lhs", "*.clj", "*.cljs",
    "*.cljc", "*.cl", "*.lisp", "*.lsp", "*.scm", "*.ss", "*.rkt", "*.sql", "*.psql", "*.mysql",
    "*.sqlite", "*.zig", "*.cu", "*.cuh",
    /* scripts */
    "*.bash", "*.zsh", "*.fish", "*.csh", "*.tcsh", "*.ksh", "*.ps1", "*.psm1", "*.psd1", "*.bat",
    "*.cmd", "*.vbs", "*.wsf", "*.applescript", "*.scpt", "*.awk", "*.sed", "*.expect",
    /* builds and projects */
    "*.env", "*.env.*", ".env*", "makefile*", "*.dockerfile", "dockerfile*", "*.mk", "*.cmake",
    "cmakelists.txt", "*.gradle", "*.gradle.kts", "build.gradle*", "settings.gradle*", "*.sbt",
    "*.mill", "*.bazel", "*.bzl", "build*", "workspace*", "*.buck", "buck*", "*.ninja", "*.gyp",
    "*.gypi", "*.waf", "wscript*", "yarn.lock", "requirements*.txt", "pipfile*", "poetry.lock",
    "cargo.lock", "go.mod", "go.sum", "composer.lock", "gemfile*", "*.gemspec", "mix.lock",
    "rebar.lock",
    /* libraries */
    "*.so", "*.dll", "*.dylib", "*.lib", "*.a"};

static const char *const doc_patterns[] = {
    "*.txt", "*.md", "*.pdf", "license*", "readme*", "setup*", "*requirements*", "*.log",
    "*.tfevents*",
    /* office */
    "*.doc", "*.docx", "*.docm", "*.dot", "*.dotx", "*.dotm", "*.rtf", "*.odt", "*.ott", "*.fodt",
    "*.pages", "*.wpd", "*.xls", "*.xlsx", "*.xlsm", "*.xlsb", "*.xlt", "*.xltx", "*.xltm", "*.ods",
    "*.ots", "*.fods", "*.numbers", "*.csv", "*.ppt", "*.pptx", "*.pptm", "*.pps", "*.ppsx",
    "*.ppsm", "*.pot", "*.potx", "*.potm", "*.odp", "*.otp", "*.fodp", "*.key",
    /* books and markup */
    "*.epub", "*.mobi", "*.azw", "*.azw3", "*.fb2", "*.fb3", "*.lit", "*.pdb", "*.djvu", "*.djv",
    "*.html", "*.htm", "*.xhtml", "*.mhtml", "*.mht", "*.xsl", "*.xslt", "*.tex", "*.latex",
    "*.ltx", "*.bib", "*.rst", "*.asciidoc", "*.adoc", "*.textile", "*.wiki", "*.mediawiki",
    "*.org", "*.texi", "*.texinfo", "*.info", "*.man", "*.chm", "*.hlp", "*.xps",
    /* images and video */
    "*.jpg", "*.jpeg", "*.png", "*.gif", "*.bmp", "*.tiff", "*.ico", "*.webp", "*.heic", "*.heif",
    "*.hevc", "*.svg", "*.mp4", "*.mov", "*.avi", "*.mkv", "*.webm", "*.m4v", "*.flv", "*.wmv",
    "*.mpg", "*.mpeg"};

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Most patterns are a suffix: worth not asking fnmatch() for. */
static bool matches(const char *base, size_t len, const char *pattern)
{
    size_t suffix = strlen(pattern + 1);
    if (pattern[0] != '*' || strpbrk(pattern + 1, "*["))
        return fnmatch(pattern, base, 0) == 0;
    return len >= suffix && memcmp(base + len - suffix, pattern + 1, suffix) == 0;
}

bool matches_any(const char *base, const char *const *patterns, size_t n)
{
    char lower[1024]; /* longer names are not files of any filesystem */
    if (!ascii_lower(base, lower, sizeof(lower)))
        return false;
    size_t len = strlen(lower);
    for (size_t i = 0; i < n; i++)
        if (matches(lower, len, patterns[i]))
            return true;
    return false;
}

enum modelpack_kind modelpack_kind_of(const char *path, uint64_t size)
{
    static const struct {
        const char *const *patterns;
        size_t n;
        enum modelpack_kind kind;
    } tables[] = {
        {config_patterns, ARRAY_LEN(config_patterns), MODELPACK_WEIGHT_CONFIG},
        {weight_patterns, ARRAY_LEN(weight_patterns), MODELPACK_WEIGHT},
        {code_patterns, ARRAY_LEN(code_patterns), MODELPACK_CODE},
        {doc_patterns, ARRAY_LEN(doc_patterns), MODELPACK_DOC},
    };
    const char *base = base_name(path);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if (matches_any(base, tables[i].patterns, tables[i].n))
            return tables[i].kind;
    return size > WEIGHT_SIZE_MIN ? MODELPACK_WEIGHT : MODELPACK_CODE;
}
