// How far the predicted times of each class of jobs are off, from jobs that ended or outlived their prediction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace apportion {

// For each class on each system, log2(true time / predicted time) is believed to be normal, at first around 0.
class ClassTimes {
public:
    // sigma: (P, S), of predictions; repeat_sigma: of log2 of a run repeated, until runs of the trace are.
    ClassTimes(const double* sigma, int64_t programs, size_t systems, double repeat_sigma);

    double mean(int64_t program, size_t system) const { return at(program, system).mean; }
    double sigma(int64_t program, size_t system) const;  // of the next run
    bool seen(int64_t program, size_t system) const { return at(program, system).runs > 0; }

    // A run ended after 2^error of its predicted time.
    void add(int64_t program, size_t system, double error);
    // A run has taken so much and is not over.
    void outlived(int64_t program, size_t system, double error);

private:
    struct Cell {
        double prior;               // variance before anything was seen
        double mean = 0, variance;  // of the belief now
        double least;               // what errors are known to exceed
        double centre = 0;          // mean error of ended runs
        int64_t runs = 0;
    };

    Cell& at(int64_t program, size_t system) { return cells_[program * systems_ + system]; }
    const Cell& at(int64_t program, size_t system) const { return cells_[program * systems_ + system]; }
    double repeat_variance() const;

    size_t systems_;
    double repeat_sigma_;
    std::vector<Cell> cells_;            // (P, S)
    double squares_ = 0, freedom_ = 0;  // of runs repeated on one system, over all classes
};

}  // namespace apportion
