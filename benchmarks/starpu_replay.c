// Replays the launches of a program with StarPU: the same kernels on the same arrays, placed by its scheduler.
//
//     starpu_replay TRACE ROUNDS OUT
//
// TRACE is what benchmarks/starpu.py writes. Prints the milliseconds of each round; after the first one OUT gets the
// bytes of all arrays. Arrays stay registered, so that they stay where StarPU left them between rounds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <starpu.h>
#include <starpu_opencl.h>

enum { MOST_ARGUMENTS = 24 };
struct argument { char kind; int array, mode; size_t nbytes; unsigned char bytes[64]; };
struct launch {
    int kernel, arguments, dimensions;
    size_t global[3], local[3];
    struct argument argument[MOST_ARGUMENTS];
};
static struct starpu_opencl_program program;
static char names[64][128];

static void fail(const char *what) { fprintf(stderr, "%s\n", what); exit(1); }

static void run(void *buffers[], void *told) {
    struct launch *launch = told;
    int worker = starpu_worker_get_id(), device = starpu_worker_get_devid(worker);
    cl_kernel kernel;
    cl_command_queue queue;
    if (starpu_opencl_load_kernel(&kernel, &queue, &program, names[launch->kernel], device)) fail("load kernel");
    int place = 0, seen[MOST_ARGUMENTS];
    for (int i = 0; i < launch->arguments; i++) {
        struct argument *each = &launch->argument[i];
        cl_int error;
        seen[i] = -1;
        if (each->kind == 'A') {
            for (int j = 0; j < i; j++)  // one array as several arguments is one buffer
                if (launch->argument[j].kind == 'A' && launch->argument[j].array == each->array) seen[i] = seen[j];
            if (seen[i] < 0) seen[i] = place++;
            cl_mem memory = (cl_mem)STARPU_VECTOR_GET_DEV_HANDLE(buffers[seen[i]]);
            error = clSetKernelArg(kernel, i, sizeof memory, &memory);
        } else error = clSetKernelArg(kernel, i, each->nbytes, each->kind == 'L' ? NULL : each->bytes);
        if (error != CL_SUCCESS) fail("set argument");
    }
    if (clEnqueueNDRangeKernel(queue, kernel, launch->dimensions, NULL, launch->global, launch->local, 0, NULL, NULL)
        != CL_SUCCESS) fail("enqueue");
    clFinish(queue);
    starpu_opencl_release_kernel(kernel);
}

int main(int count, char **words) {
    if (count != 4) fail("starpu_replay TRACE ROUNDS OUT");
    FILE *file = fopen(words[1], "rb");
    if (!file) fail("no trace");
    int arrays, kernels, launches, length;
    if (fscanf(file, "%d %d %d %d\n", &arrays, &kernels, &launches, &length) != 4) fail("head");
    char *source = calloc(length + 1, 1);
    if (fread(source, 1, length, file) != (size_t)length) fail("source");
    for (int i = 0; i < kernels; i++) if (fscanf(file, " %127s", names[i]) != 1) fail("kernel");
    size_t *nbytes = calloc(arrays, sizeof *nbytes);
    unsigned char **data = calloc(arrays, sizeof *data);
    for (int i = 0; i < arrays; i++) if (fscanf(file, " %zu", &nbytes[i]) != 1) fail("array");
    struct launch *all = calloc(launches, sizeof *all);
    for (int n = 0; n < launches; n++) {
        struct launch *each = &all[n];
        if (fscanf(file, " %d %d %d", &each->kernel, &each->dimensions, &each->arguments) != 3) fail("launch");
        for (int d = 0; d < each->dimensions; d++)
            if (fscanf(file, " %zu %zu", &each->global[d], &each->local[d]) != 2) fail("range");
        for (int i = 0; i < each->arguments; i++) {
            struct argument *one = &each->argument[i];
            if (fscanf(file, " %c", &one->kind) != 1) fail("kind");
            if (one->kind == 'A') { if (fscanf(file, " %d %d", &one->array, &one->mode) != 2) fail("array argument"); }
            else if (fscanf(file, " %zu", &one->nbytes) != 1) fail("size");
            if (one->kind == 'V')
                for (size_t b = 0; b < one->nbytes; b++) { unsigned byte; if (fscanf(file, " %u", &byte) != 1) fail("byte"); one->bytes[b] = byte; }
        }
    }
    fgetc(file);
    if (starpu_init(NULL)) fail("starpu_init");
    starpu_data_handle_t *handles = calloc(arrays, sizeof *handles);
    for (int i = 0; i < arrays; i++) {
        starpu_malloc((void **)&data[i], nbytes[i]);
        if (fread(data[i], 1, nbytes[i], file) != nbytes[i]) fail("contents");
        starpu_vector_data_register(&handles[i], STARPU_MAIN_RAM, (uintptr_t)data[i], nbytes[i], 1);
    }
    if (starpu_opencl_load_opencl_from_string(source, &program, NULL)) fail("build");
    struct starpu_codelet *codelets = calloc(kernels, sizeof *codelets);
    struct starpu_perfmodel *models = calloc(kernels, sizeof *models);
    for (int k = 0; k < kernels; k++) {
        models[k].type = STARPU_HISTORY_BASED;
        models[k].symbol = names[k];
        starpu_codelet_init(&codelets[k]);
        codelets[k].opencl_funcs[0] = run;
        codelets[k].nbuffers = STARPU_VARIABLE_NBUFFERS;
        codelets[k].model = &models[k];
        codelets[k].name = names[k];
    }
    int rounds = atoi(words[2]);
    for (int round = 0; round < rounds; round++) {
        double began = starpu_timing_now();
        for (int n = 0; n < launches; n++) {
            struct launch *each = &all[n];
            struct starpu_task *task = starpu_task_create();
            task->cl = &codelets[each->kernel];
            task->cl_arg = each;
            task->cl_arg_size = sizeof *each;
            int used[MOST_ARGUMENTS], place = 0;
            for (int i = 0; i < each->arguments; i++) {
                if (each->argument[i].kind != 'A') continue;
                int before = -1;
                for (int j = 0; j < place; j++) if (used[j] == each->argument[i].array) before = j;
                if (before < 0) {
                    used[place] = each->argument[i].array;
                    task->handles[place] = handles[used[place]];
                    task->modes[place++] = each->argument[i].mode ? STARPU_RW : STARPU_R;
                } else if (each->argument[i].mode) task->modes[before] = STARPU_RW;
            }
            task->nbuffers = place;
            if (starpu_task_submit(task)) fail("submit");
        }
        starpu_task_wait_for_all();
        printf("%.4f\n", 1e-3 * (starpu_timing_now() - began));
        fflush(stdout);
        if (round == 0) {
            FILE *out = fopen(words[3], "wb");
            for (int i = 0; i < arrays; i++) {
                starpu_data_acquire(handles[i], STARPU_R);
                fwrite(data[i], 1, nbytes[i], out);
                starpu_data_release(handles[i]);
            }
            fclose(out);
        }
    }
    for (int i = 0; i < arrays; i++) starpu_data_unregister(handles[i]);
    starpu_shutdown();
    return 0;
}
