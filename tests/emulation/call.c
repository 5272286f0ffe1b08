/* Calls a function of an exported library with tensors from files:
 *
 *     call LIBRARY FUNCTION CODE,BITS:EXTENT,EXTENT...:/FILE ...
 *
 * The tensors are written back to their files. Prints how many threads the process has then.
 * The layout of arguments is tvm-ffi's, the tensors' DLPack's. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct any {
    int32_t type_index, padding;
    union { int64_t number; void *pointer; } value;
};
enum { CPU = 1, TENSOR_POINTER = 7 };
typedef int32_t function(void *self, const struct any *args, int32_t count, struct any *result);

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static FILE *open_file(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file) fail(path, "can't be opened");
    return file;
}

/* Reads one description; returns the bytes of the data. */
static size_t read_tensor(struct tensor *t, char *text, const char **path) {
    t->device_type = CPU;
    t->lanes = 1;
    t->shape = calloc(8, sizeof *t->shape);
    char *at = text;
    t->code = strtol(at, &at, 10);
    t->bits = strtol(at + 1, &at, 10);
    size_t count = 1;
    for (; at[1] != '/' && at[1] != ':'; t->ndim++) {
        t->shape[t->ndim] = strtoll(at + 1, &at, 10);
        count *= t->shape[t->ndim];
    }
    *path = strchr(at, '/');
    size_t bytes = count * ((t->bits + 7) / 8);
    t->data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    FILE *file = open_file(*path, "rb");
    if (fread(t->data, 1, bytes, file) != bytes) fail(*path, "is too short");
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(argv[1], dlerror());
    function *call = (function *)dlsym(library, argv[2]);
    if (!call) fail(argv[2], dlerror());
    int count = argc - 3;
    struct tensor *tensors = calloc(count, sizeof *tensors);
    struct any *args = calloc(count, sizeof *args), result = {0};
    const char **paths = calloc(count, sizeof *paths);
    size_t *bytes = calloc(count, sizeof *bytes);
    for (int i = 0; i < count; i++) {
        bytes[i] = read_tensor(&tensors[i], argv[3 + i], &paths[i]);
        args[i].type_index = TENSOR_POINTER;
        args[i].value.pointer = &tensors[i];
    }
    int32_t code = call(NULL, args, count, &result);
    if (code) fail(argv[2], "returned an error");
    for (int i = 0; i < count; i++) {
        FILE *file = open_file(paths[i], "wb");
        if (fwrite(tensors[i].data, 1, bytes[i], file) != bytes[i]) fail(paths[i], "can't be written");
        fclose(file);
    }
    int threads = 0;
    DIR *folder = opendir("/proc/self/task");
    while (readdir(folder)) threads++;
    printf("%d\n", threads - 2);
    return 0;
}
