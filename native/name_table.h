// Names -> numbers: a flat hash table, because the standard one allocates for each name.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace apportion {

class NameTable {
  public:
    // The number of a name; when it is new it gets `fresh`, and the second part says so.
    // The name's characters must outlive the table's contents.
    std::pair<int32_t, bool> insert(std::string_view name, int32_t fresh) {
        if ((used_ + 1) * 2 > slots_.size()) grow();
        Slot& slot = slots_[place_of(name, hash(name))];
        if (slot.generation == generation_) return {slot.number, false};
        slot = {name, generation_, fresh};
        ++used_;
        return {fresh, true};
    }
    // The number of a name, or -1.
    int32_t find(std::string_view name) const {
        if (slots_.empty()) return -1;
        const Slot& slot = slots_[place_of(name, hash(name))];
        return slot.generation == generation_ ? slot.number : -1;
    }
    // Forgets everything at no cost: slots of an older generation are empty.
    void clear() {
        used_ = 0;
        ++generation_;
    }

  private:
    struct Slot {
        std::string_view name;
        uint32_t generation = 0;
        int32_t number = -1;
    };

    static uint64_t hash(std::string_view name) {
        uint64_t h = name.size() * 0x9E3779B97F4A7C15ull;
        const char* p = name.data();
        size_t left = name.size();
        for (; left >= 8; left -= 8, p += 8) {
            uint64_t word;
            memcpy(&word, p, 8);
            h = (h ^ word) * 0xFF51AFD7ED558CCDull;
            h ^= h >> 32;
        }
        uint64_t word = 0;
        if (left) memcpy(&word, p, left);
        h = (h ^ word) * 0xC4CEB9FE1A85EC53ull;
        return h ^ h >> 29;
    }
    size_t place_of(std::string_view name, uint64_t h) const {
        size_t place = h & (slots_.size() - 1);
        while (slots_[place].generation == generation_ && slots_[place].name != name) place = (place + 1) & (slots_.size() - 1);
        return place;
    }
    void grow() {
        std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old)
            if (slot.generation == generation_) slots_[place_of(slot.name, hash(slot.name))] = slot;
    }

    std::vector<Slot> slots_;
    size_t used_ = 0;
    uint32_t generation_ = 1;
};

}  // namespace apportion
