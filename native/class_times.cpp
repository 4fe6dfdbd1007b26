// Normal beliefs about the errors of predicted times, conditioned on runs that ended and on runs that go on.
#include "class_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace apportion {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr double kAsSure = 10;  // the sigma of repeated runs that was given counts as so many repeated runs

// The density of a standard normal variable at a point over its tail beyond; far out by its expansion.
double hazard(double at) {
    if (at > 20) return at + 1 / at;
    return std::exp(-at * at / 2) / (1.2533141373155002512 * std::erfc(at / 1.4142135623730950488));
}

}  // namespace

ClassTimes::ClassTimes(const double* sigma, int64_t programs, size_t systems, double repeat_sigma)
    : systems_(systems), repeat_sigma_(repeat_sigma), cells_(programs * systems) {
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
        cells_[cell].variance = cells_[cell].prior = sigma[cell] * sigma[cell];
        cells_[cell].least = kNothing;
    }
}

double ClassTimes::sigma(int64_t program, size_t system) const {
    const Cell& cell = at(program, system);
    return std::sqrt(cell.variance + (cell.runs > 0 ? repeat_variance() : 0.0));
}

double ClassTimes::repeat_variance() const {
    return (kAsSure * repeat_sigma_ * repeat_sigma_ + squares_) / (kAsSure + freedom_);
}

void ClassTimes::add(int64_t program, size_t system, double error) {
    Cell& cell = at(program, system);
    const double apart = error - cell.centre;
    ++cell.runs;
    cell.centre += apart / static_cast<double>(cell.runs);
    if (cell.runs > 1) {
        squares_ += apart * (error - cell.centre);
        freedom_ += 1;
    }
    if (cell.prior <= 0) {  // it was said to be exact
        cell.mean = 0;
        return;
    }
    const double noise = repeat_variance() / static_cast<double>(cell.runs);
    const double trust = cell.prior / (cell.prior + noise);
    cell.mean = trust * cell.centre;
    cell.variance = trust * noise;
}

void ClassTimes::outlived(int64_t program, size_t system, double error) {
    Cell& cell = at(program, system);
    if (cell.runs > 0 || error <= cell.least) return;  // a whole run tells more
    cell.least = error;
    if (cell.prior <= 0) {
        cell.mean = std::max(0.0, error);
        return;
    }
    // The normal distribution beyond that bound.
    const double sigma = std::sqrt(cell.prior), bound = error / sigma, rate = hazard(bound);
    cell.mean = sigma * rate;
    cell.variance = cell.prior * std::max(1 - rate * (rate - bound), 1e-3);
}

}  // namespace apportion
