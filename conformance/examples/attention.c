/* Attention in plain C, judged through files: reads the cases of a folder, writes results.

       cc -std=c99 -O2 -o attention attention.c -lm
       attncheck export cases --dtype F32
       ./attention cases
       attncheck judge cases

   What to replace with your own is `attention`; the rest reads and writes the files, as
   docs/format.md describes them. Float32, forward and log-sum-exp, on a machine whose
   lowest byte comes first. Do not compile with -ffast-math: NaN and infinity are data. */

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("attention: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

#define LARGEST ((size_t)1 << 40) /* elements: more is a mistake */

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) die("no memory for %zu elements", count);
    return memory;
}

/* ---------------------------------------------------------------- the computation */

/* An array of four axes, wherever its elements lie. Where it is the same all along an axis,
   the stride of that axis may be 0. `data` is NULL where a case has no such input. */
typedef struct {
    float *data;
    size_t shape[4], stride[4];
} Tensor;

static float *element(const Tensor *t, size_t x, size_t y, size_t z, size_t w) {
    const size_t *s = t->stride;
    return t->data + x * s[0] + y * s[1] + z * s[2] + w * s[3];
}

typedef struct {
    Tensor q, k, v;             /* b n i d, b h j d, b h j e */
    Tensor mask, bias, keep;    /* b n i j, each axis full or 1 */
    float scale, softcap, rate; /* softcap 0: none */
} Call;

static int sees(const Call *c, size_t b, size_t n, size_t i, size_t j) {
    return !c->mask.data || *element(&c->mask, b, n, i, j) != 0;
}

static float logit(const Call *c, size_t b, size_t n, size_t h, size_t i, size_t j) {
    float sum = 0;
    for (size_t x = 0; x < c->q.shape[3]; x++)
        sum += *element(&c->q, b, n, i, x) * *element(&c->k, b, h, j, x);
    sum *= c->scale;
    if (c->softcap) sum = c->softcap * tanhf(sum / c->softcap);
    if (c->bias.data) sum += *element(&c->bias, b, n, i, j);
    return sum;
}

/* One query over the keys that it may see: adds to `output` (e), returns the log-sum-exp
   of the logits. A key that it may not see is not looked at. */
static float attend(const Call *c, size_t b, size_t n, size_t i, float *weights,
                    float *output) {
    size_t heads = c->k.shape[1], keys = c->k.shape[2];
    size_t h = n / (c->q.shape[1] / heads); /* consecutive query heads share one */
    float top = -INFINITY, total = 0;
    for (size_t j = 0; j < keys; j++) {
        if (!sees(c, b, n, i, j)) continue;
        weights[j] = logit(c, b, n, h, i, j);
        if (weights[j] > top || isnan(weights[j])) top = weights[j]; /* NaN stays */
    }
    if (top == -INFINITY) return top; /* no key, or none that counts: an empty sum */
    for (size_t j = 0; j < keys; j++) {
        if (!sees(c, b, n, i, j)) continue;
        weights[j] = expf(weights[j] - top);
        total += weights[j];
    }
    for (size_t j = 0; j < keys; j++) {
        if (!sees(c, b, n, i, j)) continue;
        float weight = weights[j] / total;
        if (c->keep.data) weight *= *element(&c->keep, b, n, i, j) / (1 - c->rate);
        for (size_t x = 0; x < c->v.shape[3]; x++)
            output[x] += weight * *element(&c->v, b, h, j, x);
    }
    return top + logf(total);
}

/* output: b n i e, all 0 at first; lse: b n i */
static void attention(const Call *c, float *output, float *lse) {
    float *weights = allocate(c->k.shape[2], sizeof *weights);
    for (size_t b = 0; b < c->q.shape[0]; b++)
        for (size_t n = 0; n < c->q.shape[1]; n++)
            for (size_t i = 0; i < c->q.shape[2]; i++, output += c->v.shape[3])
                *lse++ = attend(c, b, n, i, weights, output);
    free(weights);
}

/* ------------------------------------------------------------------------- JSON */

/* A value is a pointer to its first character, in a text that ends with a 0. Nothing is
   copied, and nothing but what is asked for is understood. */

static const char *blank(const char *p) {
    return p + strspn(p, " \t\r\n");
}

static const char *after_text(const char *p) { /* p is at its opening quote */
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

static const char *after(const char *p) {
    int depth = 0;
    for (p = blank(p); *p;) {
        if (*p == '"') {
            p = after_text(p);
            if (!depth) return p;
        } else if (strchr("[{", *p)) {
            depth++, p++;
        } else if (strchr("]}", *p)) {
            if (!depth) return p;
            p++;
            if (!--depth) return p;
        } else if (!depth && strchr(", \t\r\n", *p)) {
            return p;
        } else {
            p++;
        }
    }
    return p;
}

static int is(const char *p, const char *text) { /* of texts without escapes */
    size_t length = strlen(text);
    return *p == '"' && !strncmp(p + 1, text, length) && p[length + 1] == '"';
}

/* The elements of a list: first(p), next(p), … until NULL. */
static const char *first(const char *p) {
    p = blank(p + 1);
    return *p && *p != ']' && *p != '}' ? p : NULL;
}

static const char *next(const char *p) {
    p = blank(after(p));
    return *p == ',' ? blank(p + 1) : NULL;
}

/* The value of a key of an object, or NULL. */
static const char *find(const char *object, const char *key) {
    if (*object != '{') return NULL;
    for (const char *p = first(object); p && *p == '"'; p = next(p)) {
        const char *colon = blank(after_text(p));
        if (*colon != ':') return NULL;
        if (is(p, key)) return blank(colon + 1);
        p = blank(colon + 1);
    }
    return NULL;
}

static const char *get(const char *object, const char *key) {
    const char *value = find(object, key);
    if (!value) die("'%s' is missing", key);
    return value;
}

static float number(const char *p) { /* 0 for null */
    return *p == 'n' ? 0 : strtof(p, NULL);
}

/* Reads a list of whole numbers, at most `most`; their count, or -1 if there are more. */
static int numbers(const char *list, uint64_t *found, int most) {
    int count = 0;
    for (const char *p = first(list); p; p = next(p)) {
        if (count == most) return -1;
        found[count++] = strtoull(p, NULL, 10);
    }
    return count;
}

/* ------------------------------------------------------------------------ files */

typedef struct {
    char *bytes; /* and a 0 after them */
    size_t size;
} File;

static FILE *opened(const char *folder, const char *name, int length, const char *mode) {
    char path[4096];
    int written = snprintf(path, sizeof path, "%s/%.*s", folder, length, name);
    FILE *file = written < (int)sizeof path ? fopen(path, mode) : NULL;
    if (!file) die("cannot open %s", path);
    return file;
}

static File contents(const char *folder, const char *name, int length) {
    FILE *stream = opened(folder, name, length, "rb");
    File file = {NULL, 0};
    size_t room = 0, count;
    do {
        if (file.size + 1 >= room) {
            room = 2 * room + 4096;
            if (!(file.bytes = realloc(file.bytes, room))) die("no memory for a file");
        }
        count = fread(file.bytes + file.size, 1, room - file.size - 1, stream);
        file.size += count;
    } while (count);
    fclose(stream);
    file.bytes[file.size] = 0;
    return file;
}

static File named(const char *folder, const char *text) { /* by a text of JSON */
    if (*text != '"') die("a file name that is no text");
    size_t length = after_text(text) - text - 2;
    if (memchr(text + 1, '\\', length)) die("a file name with escapes");
    return contents(folder, text + 1, (int)length);
}

/* ------------------------------------------------------------------ safetensors */

/* Eight bytes say how long the header is, the lowest first; the header is JSON; the arrays
   follow, where data_offsets says, counted from the end of the header. */
static uint64_t header_size(File file) {
    uint64_t size = 0;
    if (file.size < 8) die("a safetensors file without a header");
    for (int x = 7; x >= 0; x--) size = size << 8 | (unsigned char)file.bytes[x];
    if (size > file.size - 8) die("a header that is longer than its file");
    return size;
}

/* Memory for an array whose axes (letters) lie in it as `order` says: from the outermost to
   the innermost; a number is an axis of that size of which the array is the first slice; an
   axis that is left out has stride 0. NULL: one after the other. */
static void lay_out(Tensor *t, const char *axes, const char *order) {
    size_t step = 1;
    if (!order) {
        for (int a = 3; a >= 0; a--) t->stride[a] = step, step *= t->shape[a];
    } else {
        for (const char *p = after_text(order) - 2; p > order; p--) {
            const char *axis = strchr(axes, *p);
            if (axis) {
                t->stride[axis - axes] = step;
                step *= t->shape[axis - axes];
            } else if (*p != ' ') {
                while (p[-1] != ' ' && p[-1] != '"') p--;
                step *= strtoul(p, NULL, 10) & 127;
            }
            if (step > LARGEST) die("strides that reach too far");
        }
    }
    t->data = allocate(step, sizeof *t->data);
    for (size_t x = 0; x < step; x++) t->data[x] = NAN; /* what lies between is not read */
}

/* Copies the bytes of an array in C order to where they lie. Booleans become 0 and 1. */
static void fill(Tensor *t, const char *bytes, int is_bool) {
    for (size_t x = 0; x < t->shape[0]; x++)
        for (size_t y = 0; y < t->shape[1]; y++)
            for (size_t z = 0; z < t->shape[2]; z++)
                for (size_t w = 0; w < t->shape[3]; w++) {
                    float *place = element(t, x, y, z, w);
                    if (is_bool) *place = *bytes++;
                    else memcpy(place, bytes, sizeof *place), bytes += sizeof *place;
                }
}

/* An input of a case, in memory as the case wants it; without data if there is none. */
static Tensor input(const char *line, File file, const char *name, const char *axes) {
    Tensor t = {NULL, {0, 0, 0, 0}, {0, 0, 0, 0}};
    uint64_t header = header_size(file), shape[4], limits[2];
    const char *base = file.bytes + 8 + header, *entry = find(blank(file.bytes + 8), name);
    if (!entry) return t;
    int is_bool = is(get(entry, "dtype"), "BOOL");
    if (!is_bool && !is(get(entry, "dtype"), "F32")) die("`%s` is not float32", name);
    if (numbers(get(entry, "shape"), shape, 4) != 4) die("`%s` needs four axes", name);
    size_t count = 1;
    for (int a = 0; a < 4; a++) {
        if (shape[a] > 1 << 20 || (count *= shape[a]) > LARGEST) die("`%s` is huge", name);
        t.shape[a] = shape[a];
    }
    if (numbers(get(entry, "data_offsets"), limits, 2) != 2 || limits[0] > limits[1] ||
        limits[1] > file.size - 8 - header ||
        limits[1] - limits[0] != count * (is_bool ? 1 : sizeof(float)))
        die("`%s` does not lie in its file", name);
    lay_out(&t, axes, find(get(line, "strides"), name));
    fill(&t, base + limits[0], is_bool);
    return t;
}

/* Checks the sizes of an array; an axis of 1 that stands for all gets stride 0. */
static void fit(Tensor *t, const char *name, const size_t full[4], int broadcasts) {
    for (int a = 0; t->data && a < 4; a++) {
        if (broadcasts && t->shape[a] == 1) t->stride[a] = 0;
        else if (t->shape[a] != full[a]) die("`%s` has a wrong shape", name);
    }
}

static void write_arrays(FILE *file, const size_t s[4], const float *output,
                         const float *lse) {
    size_t rows = s[0] * s[1] * s[2], end = 4 * rows * s[3];
    char header[512];
    int size = snprintf(
        header, sizeof header,
        "{\"output\": {\"dtype\": \"F32\", \"shape\": [%zu, %zu, %zu, %zu], "
        "\"data_offsets\": [0, %zu]}, "
        "\"lse\": {\"dtype\": \"F32\", \"shape\": [%zu, %zu, %zu], "
        "\"data_offsets\": [%zu, %zu]}}",
        s[0], s[1], s[2], s[3], end, s[0], s[1], s[2], end, end + 4 * rows);
    for (int x = 0; x < 8; x++) fputc(x < 4 ? size >> 8 * x & 255 : 0, file);
    fwrite(header, 1, size, file);
    fwrite(output, sizeof *output, rows * s[3], file);
    fwrite(lse, sizeof *lse, rows, file);
    if (fclose(file)) die("cannot write a result");
}

/* ------------------------------------------------------------------------ cases */

/* Why a case is not for this program, or NULL. */
static const char *lacking(const char *line) {
    if (!is(get(line, "schema"), "attncheck-case/1")) die("cases of another format");
    if (!is(get(line, "op"), "attention")) return "has no multi-head or other attention";
    if (!is(get(line, "dtype"), "F32")) return "computes in float32 only";
    return NULL;
}

static void run(const char *folder, const char *line, const char *name) {
    File file = named(folder, get(line, "file"));
    Call c = {
        .q = input(line, file, "q", "bnid"),
        .k = input(line, file, "k", "bhjd"),
        .v = input(line, file, "v", "bhje"),
        .mask = input(line, file, "mask", "bnij"),
        .bias = input(line, file, "bias", "bnij"),
        .keep = input(line, file, "dropout_keep", "bnij"),
        .scale = number(get(line, "scale")),
        .softcap = number(get(line, "softcap")),
        .rate = number(get(line, "dropout_rate")),
    };
    if (!c.q.data || !c.k.data || !c.v.data) die("a case without q, k or v");
    size_t b = c.q.shape[0], n = c.q.shape[1], i = c.q.shape[2], d = c.q.shape[3];
    size_t h = c.k.shape[1], j = c.k.shape[2], e = c.v.shape[3];
    if (!h || n % h) die("%zu query heads for %zu key/value heads", n, h);
    fit(&c.k, "k", (size_t[]){b, h, j, d}, 0);
    fit(&c.v, "v", (size_t[]){b, h, j, e}, 0);
    fit(&c.mask, "mask", (size_t[]){b, n, i, j}, 1);
    fit(&c.bias, "bias", (size_t[]){b, n, i, j}, 1);
    fit(&c.keep, "dropout_keep", (size_t[]){b, n, i, j}, 1);
    float *output = allocate(b * n * i * e, sizeof *output);
    float *lse = allocate(b * n * i, sizeof *lse);
    attention(&c, output, lse);
    FILE *result = opened(folder, name, (int)strlen(name), "wb");
    write_arrays(result, (size_t[]){b, n, i, e}, output, lse);
    void *owned[] = {c.q.data,    c.k.data, c.v.data, c.mask.data, c.bias.data,
                     c.keep.data, output,   lse,      file.bytes};
    for (size_t x = 0; x < sizeof owned / sizeof *owned; x++) free(owned[x]);
}

/* The beginning of a result's line: the id and the hash as the case's line has them. */
static void begin(FILE *results, const char *line) {
    const char *id = get(line, "id"), *hash = get(line, "sha256");
    fprintf(results,
            "{\"schema\": \"attncheck-result/1\", \"id\": %.*s, \"sha256\": %.*s, "
            "\"subject\": {\"name\": \"attention.c\", \"profile\": \"strict\"}, ",
            (int)(after(id) - id), id, (int)(after(hash) - hash), hash);
}

int main(int count, char **arguments) {
    if (count != 2) die("usage: attention FOLDER");
    const char *folder = arguments[1];
    File cases = contents(folder, "cases.jsonl", 11);
    FILE *results = opened(folder, "results.jsonl", 13, "wb");
    int done = 0, others = 0;
    for (char *line = strtok(cases.bytes, "\n"); line; line = strtok(NULL, "\n")) {
        const char *why = lacking(line);
        char name[64];
        if (why) {
            begin(results, line);
            fprintf(results, "\"status\": \"not applicable\", \"message\": \"%s\"}\n", why);
            others++;
        } else { /* its arrays first, so that a line never speaks of what is not there */
            snprintf(name, sizeof name, "result-%d.safetensors", ++done);
            run(folder, line, name);
            begin(results, line);
            fprintf(results, "\"status\": \"done\", \"file\": \"%s\"}\n", name);
        }
        fflush(results);
    }
    free(cases.bytes);
    fprintf(stderr, "%d cases done, %d not applicable\n", done, others);
    return fclose(results) ? 2 : 0;
}
