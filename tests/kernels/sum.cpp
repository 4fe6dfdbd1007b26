#include <numeric>
#include <vector>

int sum(const std::vector<int> &numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0); }
