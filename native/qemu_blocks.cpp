// A plugin of QEMU's user mode: how often each translated block was executed, and its bytes. It needs no header of
// QEMU's: what it calls has been the same from QEMU 4.2 to 8.2 (version 1 of the interface).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
using plugin_id = uint64_t;

size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, size_t);
const void* qemu_plugin_insn_data(const qemu_plugin_insn*);
size_t qemu_plugin_insn_size(const qemu_plugin_insn*);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb*, int operation, void* place, uint64_t value);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void*), void*);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct Block {
    Block* next;
    uint64_t executed;
    size_t size;
    unsigned char code[1];
};

static Block* blocks = nullptr;
static char path[4096];

static void translated(plugin_id, qemu_plugin_tb* tb) {
    const size_t count = qemu_plugin_tb_n_insns(tb);
    size_t size = 0;
    for (size_t i = 0; i < count; ++i) size += qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    Block* block = static_cast<Block*>(calloc(1, sizeof(Block) + size));
    for (size_t i = 0; i < count; ++i) {
        const qemu_plugin_insn* instruction = qemu_plugin_tb_get_insn(tb, i);
        const size_t length = qemu_plugin_insn_size(instruction);
        memcpy(block->code + block->size, qemu_plugin_insn_data(instruction), length);
        block->size += length;
    }
    do block->next = blocks;
    while (!__sync_bool_compare_and_swap(&blocks, block->next, block));
    qemu_plugin_register_vcpu_tb_exec_inline(tb, 0, &block->executed, 1);
}

// Processes that the program forks write into the same file, one line a block.
static void finished(plugin_id, void*) {
    FILE* file = fopen(path, "a");
    if (!file) return;
    for (const Block* block = blocks; block; block = block->next) {
        if (!block->executed) continue;
        fprintf(file, "%llu ", static_cast<unsigned long long>(block->executed));
        for (size_t i = 0; i < block->size; ++i) fprintf(file, "%02x", block->code[i]);
        fputc('\n', file);
    }
    fputs("end\n", file);
    fclose(file);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const qemu_info_t*, int count, char** words) {
    for (int i = 0; i < count; ++i)
        if (strncmp(words[i], "out=", 4) == 0) snprintf(path, sizeof path, "%s", words[i] + 4);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, nullptr);
    return 0;
}
}
