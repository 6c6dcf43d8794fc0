// What digits.cc trains: images of handwritten digits (data/README.md), and a network with one
// hidden layer that predicts which digit an image shows. Plain loops; nothing here depends on other
// ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

inline constexpr size_t kPixels = 64;
inline constexpr size_t kHidden = 64;
inline constexpr size_t kClasses = 10;

struct Image {
  std::array<float, kPixels> pixels;  // From 0 to 1.
  size_t digit = 0;
};

struct Digits {
  std::vector<Image> train, test;
};

// Every fifth image is kept for testing.
inline Digits load_digits(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cannot read " + path);
  Digits data;
  for (size_t row = 0; std::getline(file, line); ++row) {
    std::istringstream numbers(line);
    Image image;
    char comma = ',';
    for (float& pixel : image.pixels) {
      numbers >> pixel >> comma;
      pixel /= 16;
    }
    if (!(numbers >> image.digit) || image.digit >= kClasses) {
      throw std::runtime_error(path + ": row " + std::to_string(row) + " is not an image");
    }
    (row % 5 == 4 ? data.test : data.train).push_back(image);
  }
  return data;
}

// score = output_weights * relu(hidden_weights * pixels + hidden_bias) + output_bias
class Network {
 public:
  // The parameters in the order of the forward pass, contiguous in one vector. Their gradients are
  // at the same positions in another.
  enum Part { hidden_weights, hidden_bias, output_weights, output_bias, kParts };

  explicit Network(unsigned seed) : parameters_(offset(kParts)), gradients_(offset(kParts)) {
    std::mt19937 random(seed);
    const auto fill = [&](Part part, size_t inputs) {
      const float limit = 1 / std::sqrt(static_cast<float>(inputs));
      std::uniform_real_distribution<float> uniform(-limit, limit);
      for (float& parameter : parameter_of(part))
        parameter = uniform(random);
    };
    fill(hidden_weights, kPixels);
    fill(hidden_bias, kPixels);
    fill(output_weights, kHidden);
    fill(output_bias, kHidden);
  }

  std::vector<float>& parameters() { return parameters_; }
  const std::vector<float>& parameters() const { return parameters_; }
  std::vector<float>& gradients() { return gradients_; }
  std::span<float> parameter_of(Part part) { return part_of(parameters_, part); }
  std::span<float> gradient_of(Part part) { return part_of(gradients_, part); }

  // The scores of one image; `hidden` keeps what the backward pass needs.
  std::array<float, kClasses> forward(const Image& image,
                                      std::array<float, kHidden>& hidden) const {
    multiply_add(at(hidden_weights), at(hidden_bias), image.pixels, hidden);
    for (float& unit : hidden)
      unit = std::max(unit, 0.0F);
    std::array<float, kClasses> scores{};
    multiply_add(at(output_weights), at(output_bias), hidden, scores);
    return scores;
  }

  // The first half of the backward pass over a batch: the mean cross entropy (returned), and the
  // output layer's gradients.
  template <typename Images>
  double backward_output(const Images& batch) {
    const size_t size = batch.size();
    hidden_.resize(size);
    errors_.resize(size);
    double loss = 0;
    for (size_t b = 0; b < size; ++b) {
      errors_[b] = forward(*batch[b], hidden_[b]);
      loss += softmax_minus_one_hot(errors_[b], batch[b]->digit);
      for (float& error : errors_[b])
        error /= static_cast<float>(size);
    }
    std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    for (size_t b = 0; b < size; ++b) {
      add_outer(errors_[b], hidden_[b], gradient_of(output_weights), gradient_of(output_bias));
    }
    return loss / static_cast<double>(size);
  }

  // The second half: the hidden layer's gradients.
  template <typename Images>
  void backward_hidden(const Images& batch) {
    const std::span<const float> weights = parameter_of(output_weights);
    for (size_t b = 0; b < batch.size(); ++b) {
      std::array<float, kHidden> error{};
      for (size_t c = 0; c < kClasses; ++c) {
        for (size_t h = 0; h < kHidden; ++h)
          error[h] += errors_[b][c] * weights[c * kHidden + h];
      }
      for (size_t h = 0; h < kHidden; ++h)
        error[h] = hidden_[b][h] > 0 ? error[h] : 0;
      add_outer(error, batch[b]->pixels, gradient_of(hidden_weights), gradient_of(hidden_bias));
    }
  }

  // Turns scores into probabilities less 1 at `digit` (the loss's gradient); returns the loss.
  static double softmax_minus_one_hot(std::array<float, kClasses>& scores, size_t digit) {
    const float largest = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (float& score : scores)
      sum += score = std::exp(score - largest);
    for (float& score : scores)
      score /= sum;
    const double loss = -std::log(std::max(scores[digit], 1e-30F));
    scores[digit] -= 1;
    return loss;
  }

 private:
  static constexpr size_t offset(Part part) {
    constexpr std::array<size_t, kParts> kSizes{kHidden * kPixels, kHidden, kClasses * kHidden,
                                                kClasses};
    size_t sum = 0;
    for (size_t i = 0; i < part; ++i)
      sum += kSizes[i];
    return sum;
  }

  static std::span<float> part_of(std::vector<float>& all, Part part) {
    const size_t start = offset(part);
    return std::span<float>(all).subspan(start, offset(static_cast<Part>(part + 1)) - start);
  }

  const float* at(Part part) const { return parameters_.data() + offset(part); }

  // out = weights * in + bias, one row of weights for each output.
  template <size_t In, size_t Out>
  static void multiply_add(const float* weights, const float* bias, const std::array<float, In>& in,
                           std::array<float, Out>& out) {
    for (size_t o = 0; o < Out; ++o) {
      float sum = bias[o];
      for (size_t i = 0; i < In; ++i)
        sum += weights[o * In + i] * in[i];
      out[o] = sum;
    }
  }

  template <size_t In, size_t Out>
  static void add_outer(const std::array<float, Out>& error, const std::array<float, In>& in,
                        std::span<float> weights, std::span<float> bias) {
    for (size_t o = 0; o < Out; ++o) {
      bias[o] += error[o];
      for (size_t i = 0; i < In; ++i)
        weights[o * In + i] += error[o] * in[i];
    }
  }

  std::vector<float> parameters_, gradients_;
  std::vector<std::array<float, kHidden>> hidden_;   // Activations of the current batch.
  std::vector<std::array<float, kClasses>> errors_;  // The same.
};
