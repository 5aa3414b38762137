/* What an import is taken for. Only an exact pair of module and name is ever let through; the list
 * of what is known to be dangerous only makes the report say so in a stronger word.
 *
 * Sources: what torch itself loads with weights_only (torch/_weights_only_unpickler.py), and the
 * lists and advisories of public scanners.
 */
#include <string.h>

#include "base/cleanup.h"
#include "model/pickle.h"

struct rule {
    const char *module;
    const char *names; /* separated by blanks; with blanks around */
};

static const struct rule allowed[] = {
    {"collections", " OrderedDict "},
    {"torch._utils", " _rebuild_tensor_v2 "},
    {"torch", " DoubleStorage FloatStorage HalfStorage BFloat16Storage LongStorage IntStorage "
              "ShortStorage CharStorage ByteStorage BoolStorage ComplexFloatStorage "
              "ComplexDoubleStorage QInt8Storage QUInt8Storage QInt32Storage QUInt4x2Storage "
              "QUInt2x4Storage "},
    {"numpy", " dtype ndarray "},
    {"numpy.core.multiarray", " _reconstruct "},
    {"numpy._core.multiarray", " _reconstruct "},
};

#define TENSOR_CLASSES                                                                             \
    "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor "         \
    "IntTensor LongTensor ShortTensor "

/* Plain values, and constructors that do nothing but hold what they are given. */
static const struct rule extended[] = {
    {"collections", " Counter defaultdict deque "},
    {"torch", " Size Tensor device Generator float64 float32 float16 bfloat16 float8_e4m3fn "
              "float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 "
              "int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex32 complex64 "
              "complex128 bcomplex32 qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 "
              "bits2x4 bits4x2 int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 "
              "uint6 uint7 per_tensor_affine per_tensor_symmetric per_channel_affine "
              "per_channel_symmetric per_channel_affine_float_qparams strided sparse_coo "
              "sparse_csr " TENSOR_CLASSES},
    {"torch.cuda", " DoubleStorage FloatStorage HalfStorage BFloat16Storage LongStorage "
                   "IntStorage ShortStorage CharStorage ByteStorage BoolStorage "
                   "ComplexFloatStorage ComplexDoubleStorage " TENSOR_CLASSES},
    {"torch.sparse", " " TENSOR_CLASSES},
    {"torch.cuda.sparse", " " TENSOR_CLASSES},
    {"torch._utils", " _rebuild_tensor _rebuild_tensor_v3 _rebuild_parameter "
                     "_rebuild_parameter_with_state _rebuild_qtensor _rebuild_sparse_tensor "
                     "_rebuild_meta_tensor_no_storage _rebuild_wrapper_subclass "
                     "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor "},
    {"torch._tensor", " _rebuild_from_type_v2 "},
    {"torch.serialization", " _get_layout "},
    {"torch.storage", " UntypedStorage _UntypedStorage TypedStorage _TypedStorage "},
    {"torch.nn.parameter", " Parameter Buffer "},
    {"torch.jit._pickle", " build_intlist build_tensorlist build_doublelist build_boollist "
                          "build_tensor_from_id restore_type_tag "},
    {"numpy.core.multiarray", " scalar "},
    {"numpy._core.multiarray", " scalar "},
    {"numpy.core.numeric", " _frombuffer "},
    {"numpy._core.numeric", " _frombuffer "},
    {"numpy", " bool_ float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 "},
    {"numpy.dtypes",
     " BoolDType BytesDType Complex128DType Complex64DType DateTime64DType Float16DType "
     "Float32DType Float64DType Int16DType Int32DType Int64DType Int8DType StrDType "
     "TimeDelta64DType UInt16DType UInt32DType UInt64DType UInt8DType VoidDType "},
    {"_codecs", " encode "},
    {"copy_reg", " _reconstructor "},
    {"copyreg", " _reconstructor "},
    {"builtins",
     " bool bytearray bytes complex dict float frozenset int list object range set slice "
     "str tuple "},
    {"__builtin__", " bool bytearray complex dict float frozenset int list long object set slice "
                    "str tuple unicode xrange "},
    {"argparse", " Namespace "},
    {"datetime", " date datetime time timedelta timezone "},
    {"fractions", " Fraction "},
    {"decimal", " Decimal "},
    {"transformers.training_args", " TrainingArguments OptimizerNames ParallelMode "},
    {"transformers.training_args_seq2seq", " Seq2SeqTrainingArguments "},
    {"transformers.trainer_utils",
     " EvaluationStrategy HubStrategy IntervalStrategy SaveStrategy SchedulerType "},
    {"transformers.trainer_pt_utils", " AcceleratorConfig "},
    {"transformers.debug_utils", " DebugOption "},
};

/* Whole modules, with all that is below them. */
static const char *const dangerous_modules[] = {
    "aiohttp",
    "antigravity",
    "asyncio",
    "atexit",
    "bdb",
    "cProfile",
    "cffi",
    "code",
    "codeop",
    "commands",
    "concurrent",
    "ctypes",
    "dbm",
    "distutils",
    "doctest",
    "ensurepip",
    "faulthandler",
    "fcntl",
    "fileinput",
    "ftplib",
    "gc",
    "glob",
    "http",
    "httplib",
    "idlelib",
    "imaplib",
    "imp",
    "importlib",
    "inspect",
    "lib2to3",
    "linecache",
    "marshal",
    "mmap",
    "msvcrt",
    "multiprocessing",
    "nntplib",
    "nt",
    "numpy.ctypeslib",
    "numpy.distutils",
    "numpy.f2py",
    "numpy.testing",
    "os",
    "pdb",
    "pickle",
    "_pickle",
    "cPickle",
    "pickletools",
    "pip",
    "pkgutil",
    "platform",
    "popen2",
    "poplib",
    "posix",
    "posixpath",
    "ntpath",
    "_posixsubprocess",
    "profile",
    "pty",
    "pydoc",
    "requests",
    "resource",
    "runpy",
    "sched",
    "select",
    "selectors",
    "setuptools",
    "shelve",
    "shutil",
    "signal",
    "site",
    "smtplib",
    "socket",
    "_socket",
    "socketserver",
    "SocketServer",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "sysconfig",
    "tarfile",
    "telnetlib",
    "tempfile",
    "test",
    "_testcapi",
    "thread",
    "_thread",
    "threading",
    "timeit",
    "torch._dynamo",
    "torch._inductor",
    "torch.hub",
    "torch.utils.bottleneck",
    "torch.utils.collect_env",
    "torch.utils.cpp_extension",
    "trace",
    "urllib",
    "urllib2",
    "urllib3",
    "uuid",
    "venv",
    "webbrowser",
    "winreg",
    "_winreg",
    "xmlrpc",
    "xmlrpclib",
    "zipfile",
    "zipimport",
    "_aix_support",
    "_osx_support",
    "_pyrepl",
};

static const struct rule dangerous[] = {
    {"builtins", " __import__ apply breakpoint compile delattr eval exec execfile getattr globals "
                 "help input locals open setattr type vars "},
    {"__builtin__", " __import__ apply breakpoint compile delattr eval exec execfile file getattr "
                    "globals help input locals open raw_input reload setattr type vars "},
    {"_codecs", " lookup register "},
    {"_io", " FileIO open open_code "},
    {"io", " FileIO open open_code "},
    {"codecs", " lookup open register "},
    {"cloudpickle", " load loads "},
    {"cloudpickle.cloudpickle",
     " _builtin_type _function_setstate _make_cell _make_empty_cell _make_function "
     "_make_skeleton_class load loads subimport "},
    {"dill", " load loads load_session "},
    {"dill._dill", " _create_code _create_function _create_type _get_attr _import_module "
                   "_load_type load loads "},
    {"functools", " partial partialmethod reduce "},
    {"joblib", " load "},
    {"joblib.numpy_pickle", " load "},
    {"logging", " FileHandler "},
    {"logging.config", " dictConfig fileConfig listen "},
    {"numpy", " fromfile load loadtxt memmap genfromtxt "},
    {"numpy.lib.npyio", " load loadtxt genfromtxt "},
    {"operator", " attrgetter itemgetter methodcaller "},
    {"_operator", " attrgetter itemgetter methodcaller "},
    {"pandas", " read_pickle eval "},
    {"pandas.io.pickle", " read_pickle "},
    {"torch", " load "},
    {"torch.serialization", " load _load _legacy_load "},
    {"torch.jit", " load "},
    {"torch.jit._serialization", " load "},
    {"torch._C", " import_ir_module _jit_import "},
    {"torch.ops", " load_library "},
    {"torch._ops", " _Ops "},
    {"torch.fx.graph_module", " reduce_graph_module reduce_package_graph_module "
                              "_forward_from_src _exec_with_source "},
    {"torch.fx.experimental.symbolic_shapes", " ShapeEnv "},
    {"torch.jit.unsupported_tensor_ops", " execWrapper "},
    {"torch.utils._config_module", " ConfigModule "},
    {"torch.utils.data.datapipes.utils.decoder", " basichandlers "},
    {"types", " CodeType FunctionType LambdaType MethodType ModuleType "},
    {"weakref", " finalize "},
};

static bool is_listed(const struct rule *rules, size_t n, const char *module, const char *name,
                      size_t name_len)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rules[i].module, module) != 0)
            continue;
        for (const char *p = rules[i].names + 1; *p;) {
            size_t len = strcspn(p, " ");
            if (len == name_len && memcmp(p, name, len) == 0)
                return true;
            p += len + 1;
        }
    }
    return false;
}

/* A module of the list, or one below it. */
static bool is_dangerous_module(const char *s, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(dangerous_modules); i++) {
        size_t n = strlen(dangerous_modules[i]);
        if (len >= n && memcmp(s, dangerous_modules[i], n) == 0 && (len == n || s[n] == '.'))
            return true;
    }
    return false;
}

/* A name with dots goes through attributes: "eval.__call__" of builtins is eval, and "os.system" of
 * any module that imports os is what it says. */
static bool is_dangerous(const char *module, const char *name)
{
    if (is_dangerous_module(module, strlen(module)))
        return true;
    for (const char *p = name; *p;) {
        size_t len = strcspn(p, ".");
        if (is_listed(dangerous, ARRAY_LEN(dangerous), module, name, (size_t)(p - name) + len))
            return true;
        if (p[len] == '.' && is_dangerous_module(p, len))
            return true;
        p += len + (p[len] == '.');
    }
    return false;
}

enum pickle_verdict pickle_judge(const char *module, const char *name)
{
    if (is_listed(allowed, ARRAY_LEN(allowed), module, name, strlen(name)))
        return PICKLE_ALLOWED;
    if (is_listed(extended, ARRAY_LEN(extended), module, name, strlen(name)))
        return PICKLE_EXTENDED;
    return is_dangerous(module, name) ? PICKLE_DANGEROUS : PICKLE_UNKNOWN;
}

const char *pickle_verdict_name(enum pickle_verdict v)
{
    static const char *const names[] = {"allowed", "extended", "unreadable", "unknown",
                                        "dangerous"};
    return names[v];
}
