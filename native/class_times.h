// How far the predicted times of each class of jobs are off, from jobs that ended or outlived their prediction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace apportion {

// For each class on each system, error = log2(true time / predicted time) is believed to be normal, at first with the
// sigma given. The true times of a class are believed to lie around what is usual on each system, as far as `trust`
// says: at 1 predictions are taken as they are, at 0 only what is usual counts. Jobs that end correct that trust.
class ClassTimes {
public:
    // sigma, deviation: (P, S), of predictions and of how far they are from what is usual on each system, log2;
    // deviation is NaN where nothing is predicted. repeat_sigma: of log2 of a run repeated, until runs of the
    // trace are.
    ClassTimes(const double* sigma, const double* deviation, double trust, int64_t programs, size_t systems,
               double repeat_sigma);

    double mean(int64_t program, size_t system) { return known(program)[system].mean; }
    double sigma(int64_t program, size_t system);  // of the next run
    bool seen(int64_t program, size_t system) const { return cells_[program * systems_ + system].runs > 0; }

    // A run ended after 2^error of its predicted time.
    void add(int64_t program, size_t system, double error);
    // A run has taken so much and is not over.
    void outlived(int64_t program, size_t system, double error);

private:
    struct Cell {
        double prior;               // variance of the prediction's error
        double deviation;
        double mean = 0, variance;  // of the belief now
        double least;               // what errors are known to exceed
        double centre = 0;          // mean error of ended runs
        int64_t runs = 0;
    };

    const Cell* known(int64_t program);  // the class's row of cells, with mean and variance as of now
    double repeat_variance() const;

    size_t systems_;
    double repeat_sigma_;
    std::vector<Cell> cells_;           // (P, S)
    std::vector<int64_t> as_of_;        // (P,): the version of the trust that the row was worked out with, -1: none
    double squares_ = 0, freedom_ = 0;  // of runs repeated on one system, over all classes
    double trust_, between_;            // between_: variance of classes around what is usual
    double usual_prior_ = 0;            // mean variance of predictions
    double product_ = 0, spread_ = 0;   // sums over cells for the trust: of error times deviation, of deviation²
    int64_t version_ = 0;
};

}  // namespace apportion
